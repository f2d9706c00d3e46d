//! Keys of direct paths: `Direct` of `[Peer]`, and `Stun` and `PortMap` of `[Interface]`.

use std::path::PathBuf;

use convoy_types::{Prefix, PublicKey};

use crate::{
    MAX_DIRECT_PREFIXES,
    assignment::Assignment,
    config::{DIRECT_KEY_FILE, Direct, Endpoint},
    draft::PeerDraft,
    key::{CONVOY, Key, Take, Write},
    located::Located,
    report::Diagnostic,
    text::{Text, is_space},
    values::{Bad, Parsed, allowed_ip, key, server, truth},
};

pub(super) static INTERFACE: [Key; 2] = [
    Key {
        name: "Stun",
        values: "HOST[:PORT], separated by commas; may be repeated",
        meaning: "STUN servers, which tell this machine its address outside, for the peers of Direct. They are asked only \
             while a direct path is sought or used. Without a port, it is 3478. Names are looked up outside the tunnel.",
        example: "stun.example.org:3478",
        take: Take::Interface(|it, line| {
            line.push(&mut it.stun, line.items(), |item| server(item, STUN_PORT))
        }),
        write: Write::Interface(|it, out| out.each(&it.stun)),
        ..CONVOY
    },
    Key {
        name: "PortMap",
        values: "yes or no",
        default: "no",
        meaning: "Whether the router is asked to forward the tunnel's UDP port, for the peers of Direct: by PCP, else by \
             NAT-PMP or UPnP, for IPv4. It does so for ten minutes at a time, so nothing stays after a crash, unless \
             the router has only lasting mappings. With yes, the kill switch lets the tunnel's own TCP out to the \
             default gateway.",
        example: "yes",
        take: Take::Interface(|it, line| {
            line.set(&mut it.port_map, |value| truth(value, "yes", "no"))
        }),
        write: Write::Interface(|it, out| out.truth(it.port_map.as_ref(), "yes", "no")),
        ..CONVOY
    },
];

/// Changes nothing in a UAPI update: one message of the supervisor has all direct paths.
pub(super) static DIRECT: [Key; 1] = [Key {
    name: "Direct",
    values: "KEY PREFIXES [PresharedKeyFile = PATH]; may be repeated",
    meaning: "A peer behind this one, the hub, that is to be reached by a direct path: its key, and its prefixes, all \
             within the hub's AllowedIPs. The first prefix is its address inside the tunnel. That machine needs such a \
             line for this one, too, and both need PersistentKeepalive, so that the hub \
             reaches them. Packets go by the hub while there is no direct path.",
    example: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg= 10.0.0.3/32 PresharedKeyFile = preshared.key",
    take: Take::Peer(take_direct),
    write: Write::Peer(|it, out| out.each(&it.directs)),
    ..CONVOY
}];

/// Parses a STUN server of the command line, as the key `Stun` has it.
///
/// # Errors
/// Says what was expected.
pub fn parse_stun_server(value: &str) -> Result<Endpoint, String> {
    let text = Text {
        start: 0,
        text: value,
    };
    server(text, STUN_PORT).map_err(|bad| bad.sentence())
}

/// The port of STUN (RFC 8489 §18.6).
const STUN_PORT: u16 = 3478;

const EXPECTED: &str = "a public key, then prefixes, then perhaps `PresharedKeyFile = PATH`";

fn take_direct(it: &mut PeerDraft, line: &mut Assignment<'_>) {
    let Some(parts) = line.accept(line.value, parts(line.value)) else {
        return;
    };
    let Some(allowed_ips) = prefixes(line, parts.prefixes) else {
        return;
    };
    let file = parts.file.map(|file| Located {
        value: PathBuf::from(file.text),
        at: line.at(file),
    });
    let direct = Direct {
        public_key: Located {
            value: parts.public_key,
            at: line.at(parts.key),
        },
        allowed_ips,
        preshared_key: None,
        preshared_key_file: file,
    };
    it.peer.directs.push(parts.with(direct));
}

/// The parts of a value.
struct Parts<'a> {
    key: Text<'a>,
    public_key: PublicKey,
    prefixes: Text<'a>,
    file: Option<Text<'a>>,
}

fn parts(value: Text<'_>) -> Parsed<Parts<'_>> {
    let Some((word, rest)) = at_space(value, value.text.find(is_space)) else {
        return Err(Bad::new(value, EXPECTED));
    };
    let public_key = PublicKey(*key(word)?);
    let (prefixes, file) = match rest.split_once('=') {
        Some((before, path)) => with_file(before.trim(), path.trim())?,
        None => (rest, None),
    };
    Ok(Parts {
        key: word,
        public_key,
        prefixes,
        file,
    })
}

/// Takes the name of the file's key off the end of the prefixes.
fn with_file<'a>(before: Text<'a>, path: Text<'a>) -> Parsed<(Text<'a>, Option<Text<'a>>)> {
    let nothing = Text { text: "", ..before };
    let (prefixes, word) =
        at_space(before, before.text.rfind(is_space)).unwrap_or((nothing, before));
    if !word.is(DIRECT_KEY_FILE) {
        return Err(Bad::new(
            word,
            format!("`{DIRECT_KEY_FILE}` before the `=`"),
        ));
    }
    if prefixes.is_empty() {
        return Err(Bad::new(word, "a prefix before this"));
    }
    if path.is_empty() {
        return Err(Bad::new(word, "the path of a file after the `=`"));
    }
    Ok((prefixes, Some(path)))
}

/// Splits at the white space that is at `at`.
fn at_space(text: Text<'_>, at: Option<usize>) -> Option<(Text<'_>, Text<'_>)> {
    let (before, after) = text.text.split_at_checked(at?)?;
    let start = text.end() - after.len();
    let [before, after] =
        [(text.start, before), (start, after)].map(|(start, text)| Text { start, text }.trim());
    Some((before, after))
}

/// Takes the prefixes; the first must be an address.
fn prefixes<'a>(line: &mut Assignment<'a>, text: Text<'a>) -> Option<Vec<Located<Prefix>>> {
    let mut taken = Vec::new();
    for item in text.split(|c| c == ',') {
        let is_first = taken.is_empty();
        let parsed = allowed_ip(item).and_then(|(prefix, has_host_bits)| match () {
            () if is_first && !prefix.is_host() => {
                let bad = Bad::new(item, "the peer's address first, such as 10.0.0.3/32");
                Err(bad.help("further prefixes follow, separated by commas"))
            }
            () if has_host_bits => {
                let bad = Bad::new(item, "a prefix without host bits");
                Err(bad.help(format!("write {prefix}")))
            }
            () => Ok(prefix),
        });
        taken.push(line.accept(item, parsed)?);
        if taken.len() > MAX_DIRECT_PREFIXES {
            let title = format!("more than {MAX_DIRECT_PREFIXES} prefixes of a direct peer");
            let error = Diagnostic::error(title, line.at(item), "one too many");
            line.report.push(error);
            return None;
        }
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_server_can_have_is_refused() {
        for address in [
            "0.0.0.0",
            "[::]:3478",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let refused = parse_stun_server(address).unwrap_err();
            assert!(
                refused.contains("an address that a server can have"),
                "{refused}"
            );
        }
        assert!(parse_stun_server("127.0.0.1").is_ok());
    }
}
