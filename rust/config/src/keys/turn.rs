//! The key of relays: `Turn` of `[Interface]`.

use std::path::PathBuf;

use convoy_types::RelayTransport;

use crate::{
    MAX_TURN_SERVERS,
    assignment::Assignment,
    config::{Endpoint, Interface, Turn},
    key::{CONVOY, Form, Key, Take, Write},
    located::Located,
    report::Diagnostic,
    text::{Text, is_space},
    values::{Bad, Parsed, server},
};

/// Changes nothing in a UAPI update: one message of the supervisor has all servers.
pub(super) static INTERFACE: [Key; 1] = [Key {
    name: "Turn",
    form: Form::Server,
    values: "SERVER Username = NAME [CaFile = PATH] PasswordFile = PATH",
    meaning: "A TURN server, which relays to peers that do not answer because a firewall blocks UDP. The server is \
         turn:HOST[:PORT][?transport=tcp] or turns:HOST[:PORT]; without a port, it is 3478, or 5349 of turns. The peers \
         need no TURN. A server is asked only once a peer has not answered for 5 s, and the next one only if it fails or \
         has no address of the peer's family. \
         PasswordFile has the password alone. CaFile, of turns alone, has the certificates in PEM form of the only \
         authorities that may vouch for the server, in 512 KiB at most; without it, those of this system may. \
         Names are looked up outside the tunnel. Direct peers meet by it where neither NATs nor firewalls let them meet \
         directly, over IPv6 or IPv4, as the server relays; over IPv4, each end then needs Stun, or a server of its own. \
         May be repeated.",
    example: "turn:turn.example.org:3478 Username = alice PasswordFile = turn.password",
    take: Take::Interface(take_turn),
    write: Write::Interface(|it, out| out.each(&it.turns)),
    ..CONVOY
}];

/// Longest name of a user in bytes (RFC 8489 §14.3).
const MAX_USER_BYTES: usize = 508;
/// The port of TURN, and the one over TLS (RFC 8656 §6.1).
const TURN_PORT: u16 = 3478;
const TURNS_PORT: u16 = 5349;

const USER: &str = "Username";
const FILE: &str = "PasswordFile";
const CA: &str = "CaFile";
const EXPECTED_USER: &str = "`Username = NAME` after the server";
const EXPECTED_FILE: &str = "`PasswordFile = PATH` after the user's name";
const EXPECTED_CA: &str = "`CaFile = PATH PasswordFile = PATH` after the user's name";
const EXPECTED_ORDER: &str = "`CaFile = PATH` before `PasswordFile = PATH`";
const EXPECTED_TLS: &str = "`CaFile` of a server by turns: alone";

fn take_turn(it: &mut Interface, line: &mut Assignment<'_>) {
    let parsed = parts(line.value).and_then(|parts| {
        let (transport, server) = uri(parts.uri)?;
        if let (Some(file), true) = (parts.ca, transport != RelayTransport::Tls) {
            return Err(Bad::new(file, EXPECTED_TLS));
        }
        Ok((parts, transport, server))
    });
    let Some(taken) = line.accept(line.value, parsed) else {
        return;
    };
    let (parts, transport, server) = &taken.value;
    if it.turns.len() == MAX_TURN_SERVERS {
        let title = format!("more than {MAX_TURN_SERVERS} TURN servers");
        let error = Diagnostic::error(title, taken.at, "one too many");
        return line.report.push(error);
    }
    let turn = Turn {
        transport: *transport,
        server: server.clone(),
        user: parts.user.text.to_owned(),
        ca_file: parts.ca.map(|file| path(line, file)),
        authorities: None,
        password_file: path(line, parts.file),
        password: None,
    };
    it.turns.push(taken.with(turn));
}

fn path(line: &Assignment<'_>, file: Text<'_>) -> Located<PathBuf> {
    Located {
        value: PathBuf::from(file.text),
        at: line.at(file),
    }
}

/// Returns whether the value may contain a password, which no message may show.
pub(crate) fn may_have_password(value: Text<'_>) -> bool {
    match parts(value) {
        Ok(parts) => parts.uri.text.contains('@'),
        // A single word is a server; of further ones, any may be meant as the password.
        Err(_) => value.text.contains('@') || !first_word(value).1.is_empty(),
    }
}

struct Parts<'a> {
    uri: Text<'a>,
    user: Text<'a>,
    ca: Option<Text<'a>>,
    file: Text<'a>,
}

fn parts(value: Text<'_>) -> Parsed<Parts<'_>> {
    let (uri, rest) = first_word(value);
    let (user, rest) = match after(rest, USER) {
        Some(rest) => first_word(rest),
        None => return Err(Bad::new(value, EXPECTED_USER)),
    };
    if user.is_empty() || user.is(FILE) || user.is(CA) {
        return Err(Bad::new(value, EXPECTED_USER));
    }
    if user.text.len() > MAX_USER_BYTES {
        let expected = format!("a user's name of at most {MAX_USER_BYTES} bytes");
        return Err(Bad::new(user, expected));
    }
    let (ca, rest) = match after(rest, CA) {
        Some(paths) => match before(paths, FILE) {
            Some((ca, rest)) if !ca.is_empty() => (Some(ca), rest),
            _ => return Err(Bad::new(value, EXPECTED_CA)),
        },
        None => (None, rest),
    };
    match after(rest, FILE) {
        Some(file) if before(file, CA).is_some() => Err(Bad::new(file, EXPECTED_ORDER)),
        Some(file) if !file.is_empty() => Ok(Parts {
            uri,
            user,
            ca,
            file,
        }),
        _ => Err(Bad::new(value, EXPECTED_FILE)),
    }
}

/// The text before the first `word =`, and the rest, which begins with it.
fn before<'a>(text: Text<'a>, word: &str) -> Option<(Text<'a>, Text<'a>)> {
    let begins = |at: &usize| {
        let (before, rest) = text.text.split_at(*at);
        let is_word = rest
            .split_once('=')
            .is_some_and(|(name, _)| name.trim_end_matches(is_space).eq_ignore_ascii_case(word));
        is_word && before.chars().next_back().is_none_or(is_space)
    };
    let mut starts = text.text.char_indices().map(|(at, _)| at);
    let at = starts.find(begins)?;
    let (before, rest) = text.text.split_at(at);
    let start = text.start + at;
    let before = Text {
        start: text.start,
        text: before,
    };
    Some((before.trim(), Text { start, text: rest }))
}

/// The text behind `word =`.
fn after<'a>(text: Text<'a>, word: &str) -> Option<Text<'a>> {
    let (name, rest) = text.split_once('=')?;
    name.trim().is(word).then_some(rest.trim())
}

fn first_word(text: Text<'_>) -> (Text<'_>, Text<'_>) {
    let end = text.text.find(is_space).unwrap_or(text.text.len());
    let (before, after) = text.text.split_at(end);
    let start = text.start + end;
    let word = Text {
        start: text.start,
        text: before,
    };
    (word, Text { start, text: after }.trim())
}

/// Reads the server's URI (RFC 7065).
fn uri(uri: Text<'_>) -> Parsed<(RelayTransport, Endpoint)> {
    let expected = "turn:HOST, turn:HOST:PORT or turns:HOST";
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err(Bad::new(uri, expected));
    };
    let is_tls = match () {
        () if scheme.text.eq_ignore_ascii_case("turn") => false,
        () if scheme.text.eq_ignore_ascii_case("turns") => true,
        () => {
            return Err(Bad::new(uri, expected));
        }
    };
    if rest.text.contains('@') {
        let bad = Bad::new(uri, "no user and no password within the server");
        return Err(bad.help("write `Username = NAME PasswordFile = PATH` after it"));
    }
    if rest.text.starts_with("//") {
        let bad = Bad::new(uri, "no `//` after the scheme (RFC 7065)");
        return Err(bad.help("write turn:HOST"));
    }
    let (host, query) = match rest.split_once('?') {
        Some((host, query)) => (host, Some(query)),
        None => (rest, None),
    };
    let transport = match (query.map(|it| it.text), is_tls) {
        (None, true) | (Some("transport=tcp"), true) => RelayTransport::Tls,
        (None, false) | (Some("transport=udp"), false) => RelayTransport::Udp,
        (Some("transport=tcp"), false) => RelayTransport::Tcp,
        (Some(_), true) => {
            return Err(Bad::new(query.unwrap_or(rest), "transport=tcp, or nothing"));
        }
        (Some(_), false) => {
            return Err(Bad::new(
                query.unwrap_or(rest),
                "transport=udp or transport=tcp",
            ));
        }
    };
    let port = if is_tls { TURNS_PORT } else { TURN_PORT };
    Ok((transport, server(host, port)?))
}

#[cfg(test)]
mod authorities;
#[cfg(test)]
mod tests;
