//! Turns rinetd's file into a forwarder's.

use std::{fmt::Write as _, net::IpAddr, path::Path};

use super::{parse::place, source::Source};
use crate::{
    report::{Diagnostic, Report},
    text::{Text, lines, without_controls},
};

/// A forwarder's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported(pub String);

/// Reads rinetd.conf; the report contains warnings about what has no counterpart.
///
/// # Errors
/// All lines that cannot be turned into a forwarder's.
pub fn import_rinetd(path: &Path) -> Result<(Imported, Report), Report> {
    let mut source = Source::read(path)?;
    // Its lines contain no secrets.
    source.show_all();
    let mut report = Report::default();
    let mut import = Import {
        text: format!("# From {}\n", without_controls(&path.to_string_lossy())),
        allows_all: None,
        has_rules: false,
        is_guarded: false,
        report: &mut report,
    };
    for line in lines(&source.text) {
        import.line(line.trim());
    }
    import.end_rule();
    let imported = Imported(import.text);
    source.finish(imported, report)
}

struct Import<'a> {
    text: String,
    /// Access of the listener above unless a list follows: rinetd lets everyone in.
    allows_all: Option<&'static str>,
    has_rules: bool,
    /// Whether a list concerns every listener.
    is_guarded: bool,
    report: &'a mut Report,
}

/// Keys of rinetd without a counterpart.
const IGNORED: [&str; 4] = ["logfile", "logcommon", "pidlogfile", "bufsize"];

impl Import<'_> {
    fn line(&mut self, line: Text<'_>) {
        let content = line.text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = content.split_whitespace().collect();
        match words.as_slice() {
            [] if line.is_empty() => {}
            [] => self.add(line.text),
            ["allow", pattern] => self.list("Allow", pattern, line),
            ["deny", pattern] => self.list("Deny", pattern, line),
            [key, ..] if IGNORED.contains(key) => self.ignore(content, line),
            [address, port, host, target, options @ ..] => {
                self.rule([address, port, host, target], line);
                if !options.is_empty() {
                    self.ignore(&options.join(" "), line);
                }
            }
            _ => self.error(
                "not a line of rinetd.conf",
                line,
                "expected `bindaddr bindport connectaddr connectport`",
            ),
        }
    }

    fn rule(&mut self, [address, port, host, target]: [&str; 4], line: Text<'_>) {
        self.end_rule();
        let ((port, protocol), (target, target_protocol)) = (port_of(port), port_of(target));
        let is_number = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_number(port) || !is_number(target) {
            return self.error(
                "a port that is not a number",
                line,
                "write the port's number",
            );
        }
        let key = match (protocol, target_protocol) {
            ("tcp", "tcp") => "Forward",
            ("udp", "udp") => "ForwardUDP",
            _ => {
                return self.error(
                    "no such forwarding",
                    line,
                    "expected TCP to TCP, or UDP to UDP",
                );
            }
        };
        let Ok(bind) = address.parse::<IpAddr>() else {
            return self.error("a name to listen on", line, "write its address");
        };
        let everyone = if bind.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        self.allows_all = (!bind.is_loopback()).then_some(everyone);
        self.has_rules = true;
        self.add(&format!(
            "{key} = {}:{port}:{}:{target}",
            bracketed(address),
            bracketed(host)
        ));
    }

    fn list(&mut self, key: &str, pattern: &str, line: Text<'_>) {
        let Some(prefixes) = prefixes_of(pattern) else {
            return self.error(
                "a pattern that is not a prefix",
                line,
                "write the addresses one by one",
            );
        };
        if key == "Allow" {
            self.is_guarded |= !self.has_rules;
            self.allows_all = None;
        }
        self.add(&format!("{key} = {prefixes}"));
    }

    /// Says what rinetd means without a list.
    fn end_rule(&mut self) {
        if let (Some(everyone), false) = (self.allows_all.take(), self.is_guarded) {
            self.add(&format!("Allow = {everyone}"));
        }
    }

    fn ignore(&mut self, what: &str, line: Text<'_>) {
        let warning = Diagnostic::warning("no counterpart", place(line), "left out");
        self.report.push(warning);
        self.add(&format!("# left out: {}", what.trim()));
    }

    fn error(&mut self, title: &str, line: Text<'_>, label: &str) {
        self.report
            .push(Diagnostic::error(title, place(line), label));
    }

    fn add(&mut self, line: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A port and its protocol.
fn port_of(word: &str) -> (&str, &str) {
    word.split_once('/').unwrap_or((word, "tcp"))
}

fn bracketed(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

/// The prefix that a pattern with wildcards is, if it is one.
fn prefixes_of(pattern: &str) -> Option<String> {
    if pattern == "*" {
        return Some("0.0.0.0/0, ::/0".to_owned());
    }
    if pattern.parse::<IpAddr>().is_ok() {
        return Some(pattern.to_owned());
    }
    let labels: Vec<&str> = pattern.split('.').collect();
    let fixed: Vec<&str> = labels
        .iter()
        .copied()
        .take_while(|label| *label != "*")
        .collect();
    let is_prefix = labels[fixed.len()..].iter().all(|label| *label == "*");
    let are_numbers = fixed.iter().all(|label| label.parse::<u8>().is_ok());
    if !is_prefix || !are_numbers || !(1..=3).contains(&fixed.len()) || labels.len() > 4 {
        return None;
    }
    let zeros = ".0".repeat(4 - fixed.len());
    Some(format!("{}{zeros}/{}", fixed.join("."), 8 * fixed.len()))
}
