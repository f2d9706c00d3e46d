//! The file of a forwarder: `Key = value` lines without sections.
//!
//! | key | values | meaning |
//! |---|---|---|
//! | `Forward` | `[address:]port:host:port` | a listener whose connections lead to a host |
//! | `ForwardUDP` | the same | a listener whose datagrams lead to a host |
//! | `Socks5` | `[address:]port` | a SOCKS5 proxy |
//! | `HttpConnect` | the same | an HTTP proxy for CONNECT |
//! | `Allow`, `Deny` | prefixes | clients; those that are denied are denied even if they are allowed |
//! | `LoginFile` | path | a file with `user:password`, which the proxy asks for |
//! | `Buffer` | `8K` to `256K` | the buffer of a connection while bytes move |
//!
//! `Allow`, `Deny` and `LoginFile` concern the listener above them. Above all listeners, they concern each: a client
//! must be allowed there and at the listener. Without an address, a listener is on 127.0.0.1 and ::1; `*` is every
//! address. IPv6 addresses are in brackets.

mod parse;
mod rinetd;
mod values;

use std::{net::SocketAddr, os::fd::AsFd, path::Path, sync::Arc};

use convoy_proto::config::AllowedIp;

use crate::{
    MAX_FILE_BYTES,
    located::{Files, Located, Place, Shown},
    mask::masked,
    open::{open_directory, read_file},
    read::{cannot_read, file_report, text_of},
    report::{Diagnostic, Report},
    text::{Content, lines},
};

pub use rinetd::{Imported, import_rinetd};

/// What a file asks to be forwarded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forwarding {
    /// The listeners, at least one.
    pub listeners: Vec<Listener>,
    /// Who may use any of them.
    pub access: AccessLists,
    /// Bytes of a buffer.
    pub buffer: Option<usize>,
}

/// A listener, and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Where it listens; `at` is the whole value.
    pub addresses: Located<Vec<SocketAddr>>,
    /// What it offers.
    pub offer: Offer,
    /// Who may use it.
    pub access: AccessLists,
    /// User and password that it asks for.
    pub login: Option<UserPassword>,
}

/// What a listener offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Connections to a host and a port.
    Tcp(String, u16),
    /// Datagrams to a host and a port.
    Udp(String, u16),
    /// SOCKS5.
    Socks5,
    /// HTTP's CONNECT.
    HttpConnect,
}

/// Prefixes of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// If there are any, nobody else may use the listener.
    pub allow: Vec<AllowedIp>,
    /// These may not, in any case.
    pub deny: Vec<AllowedIp>,
}

/// A user and a password, without a `Debug` that shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct UserPassword {
    /// The part before the first colon.
    pub user: String,
    /// The rest.
    pub password: String,
}

impl std::fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserPassword")
    }
}

/// Reads a forwarder's file; the report contains warnings only.
///
/// # Errors
/// All errors in the file.
pub fn read_forwarding(path: &Path) -> Result<(Forwarding, Report), Report> {
    let source = Source::read(path)?;
    let mut report = Report::default();
    let forwarding = parse::parse(&source, &mut report);
    source.finish(forwarding, report)
}

/// A file's text, and as diagnostics show it.
struct Source {
    text: String,
    files: Arc<Files>,
}

impl Source {
    fn read(path: &Path) -> Result<Self, Report> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let read = open_directory(directory)
            .and_then(|it| {
                read_file(
                    it.as_fd(),
                    path.file_name().unwrap_or_default().as_ref(),
                    MAX_FILE_BYTES,
                )
            })
            .map_err(|error| file_report(cannot_read(path, &error)))?;
        let (text, flaw) = text_of(&read.bytes);
        let shown = Shown {
            path: path.to_owned(),
            text: shown(&text),
        };
        let files = Arc::new(Files(vec![shown]));
        if let Some((at, title, help)) = flaw {
            let mut report = Report::default();
            report.push(Diagnostic::error(title, Place::new(0, at..at + 1), "here").help(help));
            report.files = files;
            return Err(report);
        }
        let text = text.to_string();
        Ok(Self { text, files })
    }

    /// Shows every line as it is.
    fn show_all(&mut self) {
        let replaced = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
        if let Some(Files(files)) = Arc::get_mut(&mut self.files) {
            for shown in files {
                shown.text = self.text.chars().map(replaced).collect();
            }
        }
    }

    fn finish<T>(self, value: T, mut report: Report) -> Result<(T, Report), Report> {
        report.files = self.files;
        match report.has_errors() {
            true => Err(report),
            false => Ok((value, report)),
        }
    }
}

/// The text without what may be a secret: somebody may take a tunnel's file for a forwarder's.
fn shown(text: &str) -> String {
    let mut shown = masked(text).into_bytes();
    for line in lines(text) {
        if let Content::Pair(key, value) = line.classify().content
            && parse::Key::find(&key.compact()).is_some()
        {
            shown[key.range()].copy_from_slice(key.text.as_bytes());
            let is_plain = !value.text.chars().any(char::is_control);
            if is_plain {
                shown[value.range()].copy_from_slice(value.text.as_bytes());
            }
        }
    }
    String::from_utf8(shown).unwrap_or_default()
}

#[cfg(test)]
mod tests;
