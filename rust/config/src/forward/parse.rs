//! Parses a forwarder's file.

use super::{AccessLists, Forwarding, Listener, Offer, Source, UserPassword, values};
use crate::{
    keys::nearest_word,
    located::{Located, Place},
    report::{Diagnostic, Report},
    text::{Content, Text, lines},
    values::{Bad, Parsed, allowed_ip},
};

/// A key of a forwarder's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Forward,
    ForwardUdp,
    Socks5,
    HttpConnect,
    Allow,
    Deny,
    LoginFile,
    Buffer,
}

const KEYS: [(&str, Key); 8] = [
    ("Forward", Key::Forward),
    ("ForwardUDP", Key::ForwardUdp),
    ("Socks5", Key::Socks5),
    ("HttpConnect", Key::HttpConnect),
    ("Allow", Key::Allow),
    ("Deny", Key::Deny),
    ("LoginFile", Key::LoginFile),
    ("Buffer", Key::Buffer),
];

impl Key {
    pub(super) fn find(word: &str) -> Option<Self> {
        let found = KEYS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, key)| *key)
    }
}

/// Parses a file and checks it as a whole.
pub(super) fn parse(source: &Source, report: &mut Report) -> Forwarding {
    let mut parser = Parser {
        forwarding: Forwarding::default(),
        login: None,
        report,
    };
    for line in lines(&source.text) {
        parser.line(line);
    }
    parser.finish(&source.files.0[0].path)
}

struct Parser<'a> {
    forwarding: Forwarding,
    /// Of every proxy.
    login: Option<UserPassword>,
    report: &'a mut Report,
}

impl Parser<'_> {
    fn line(&mut self, line: Text<'_>) {
        match line.classify().content {
            Content::Nothing => {}
            Content::Pair(key, value) => self.pair(key, value),
            Content::Section(text) | Content::Other(text) => {
                let error = Diagnostic::error(
                    "not a key with a value",
                    place(text),
                    "expected `Key = value`",
                );
                self.report.push(error.help("start comments with `#`"));
            }
        }
    }

    fn pair(&mut self, key: Text<'_>, value: Text<'_>) {
        let word = key.compact();
        let Some(known) = Key::find(&word) else {
            let error = Diagnostic::error("unknown key", place(key), "");
            let near = nearest_word(&word, &KEYS.map(|(name, _)| name));
            self.report.push(match near {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("`convoy help forward` lists the keys"),
            });
            return;
        };
        let outcome = match known {
            Key::Forward => values::forward(value)
                .map(|(at, host, port)| self.listener(value, at, Offer::Tcp(host, port))),
            Key::ForwardUdp => values::forward(value)
                .map(|(at, host, port)| self.listener(value, at, Offer::Udp(host, port))),
            Key::Socks5 => values::listen(value).map(|at| self.listener(value, at, Offer::Socks5)),
            Key::HttpConnect => {
                values::listen(value).map(|at| self.listener(value, at, Offer::HttpConnect))
            }
            Key::Allow => prefixes(value, &mut self.access().allow),
            Key::Deny => prefixes(value, &mut self.access().deny),
            Key::LoginFile => self.login(value),
            Key::Buffer => values::buffer(value).map(|bytes| self.forwarding.buffer = Some(bytes)),
        };
        if let Err(bad) = outcome {
            self.report.push(diagnostic(&word, bad));
        }
    }

    fn listener(&mut self, value: Text<'_>, addresses: Vec<std::net::SocketAddr>, offer: Offer) {
        self.forwarding.listeners.push(Listener {
            addresses: Located {
                value: addresses,
                at: place(value),
            },
            offer,
            access: AccessLists::default(),
            login: None,
        });
    }

    /// The lists of the listener above, or else those of every listener.
    fn access(&mut self) -> &mut AccessLists {
        match self.forwarding.listeners.last_mut() {
            Some(listener) => &mut listener.access,
            None => &mut self.forwarding.access,
        }
    }

    fn login(&mut self, value: Text<'_>) -> Parsed<()> {
        let slot = match self.forwarding.listeners.last_mut() {
            Some(listener) if !listener.offer.asks_for_a_login() => {
                return Err(Bad::new(
                    value,
                    "a proxy above it: only these ask for a password",
                ));
            }
            Some(listener) => &mut listener.login,
            None => &mut self.login,
        };
        *slot = Some(values::login_file(value)?);
        Ok(())
    }

    fn finish(mut self, path: &std::path::Path) -> Forwarding {
        for listener in &mut self.forwarding.listeners {
            if listener.login.is_none() && listener.offer.asks_for_a_login() {
                listener.login.clone_from(&self.login);
            }
        }
        if self.forwarding.listeners.is_empty() && !self.report.has_errors() {
            let error = Diagnostic::file_error("nothing is forwarded", path);
            self.report
                .push(error.help("add a line such as `Forward = 8080:192.0.2.1:80`"));
        }
        for listener in &self.forwarding.listeners {
            if !is_guarded(listener, &self.forwarding.access) {
                let title = "other hosts could use this listener";
                let error =
                    Diagnostic::error(title, listener.addresses.at, "not a loopback address");
                let help = "add a line `Allow = …` below it, or a `LoginFile` if it is a proxy";
                self.report.push(error.help(help));
            }
        }
        self.forwarding
    }
}

fn prefixes(value: Text<'_>, list: &mut Vec<convoy_proto::config::AllowedIp>) -> Parsed<()> {
    for item in value.split(|c| c == ',') {
        list.push(allowed_ip(item)?.0);
    }
    Ok(())
}

/// Whether only this host can use a listener, or something tells who else may.
pub(super) fn is_guarded(listener: &Listener, of_all: &AccessLists) -> bool {
    let is_loopback = |at: &std::net::SocketAddr| at.ip().to_canonical().is_loopback();
    let has_list = !listener.access.allow.is_empty() || !of_all.allow.is_empty();
    has_list || listener.login.is_some() || listener.addresses.value.iter().all(is_loopback)
}

fn diagnostic(key: &str, bad: Bad) -> Diagnostic {
    let at = Place::new(0, bad.range);
    let title = format!("invalid value for `{key}`");
    let error = Diagnostic::error(title, at, format!("expected {}", bad.expected));
    match bad.help {
        Some(help) => error.help(help),
        None => error,
    }
}

pub(super) fn place(text: Text<'_>) -> Place {
    Place::new(0, text.range())
}

impl Offer {
    fn asks_for_a_login(&self) -> bool {
        matches!(self, Self::Socks5 | Self::HttpConnect)
    }
}
