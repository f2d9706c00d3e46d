//! The forwarders to compare, and how each is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LEFT, PORT, RIGHT};
use crate::programs::find;

/// A forwarder with its settings. In arguments and files, `{file}` is the path of the file, `{from}` the address to
/// listen on, `{to}` that of the target, and `{port}` the port of both.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    arguments: &'static [&'static str],
    file: &'static str,
    version: &'static str,
    pub(super) published_gbps: Option<f64>,
}

pub(super) const TOKIO: &str = "tokio's copy, 8 KiB";
pub(super) const COPY: &str = "copy, 64 KiB";
pub(super) const SPLICE: &str = "splice, 64 KiB";
pub(super) const OTHERS: [&str; 3] = ["rinetd", "socat", "haproxy"];

/// Convoy's ways: name, `--relay`, `--buffer` and the published rate.
const WAYS: [(&str, &[&str], Option<f64>); 4] = [
    (
        TOKIO,
        &["forward", "--relay=tokio", "--buffer=8K", "{file}"],
        Some(17.8),
    ),
    (
        "copy, 16 KiB",
        &["forward", "--relay=copy", "--buffer=16K", "{file}"],
        Some(28.6),
    ),
    (
        COPY,
        &["forward", "--relay=copy", "--buffer=64K", "{file}"],
        Some(54.1),
    ),
    (
        SPLICE,
        &["forward", "--relay=splice", "--buffer=64K", "{file}"],
        None,
    ),
];
const CONVOY_FILE: &str = "Forward = {from}:{port}:{to}:{port}\nAllow = {to}\n";
const RINETD_FILE: &str = "{from} {port} {to} {port}\n";
const HAPROXY_FILE: &str = "\
defaults
    mode tcp
    option splice-request
    option splice-response
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen relay
    bind {from}:{port}
    server target {to}:{port}
";

/// The contenders that are installed, and the reasons why the others are not there.
pub(super) fn all(convoy: &Path) -> (Vec<Contender>, BTreeMap<String, String>) {
    let convoy = WAYS.map(|(name, arguments, published_gbps)| Contender {
        name,
        program: convoy.to_owned(),
        arguments,
        file: CONVOY_FILE,
        version: "--version",
        published_gbps,
    });
    let socat: &[&str] = &[
        "TCP-LISTEN:{port},bind={from},fork,reuseaddr",
        "TCP:{to}:{port}",
    ];
    let others = [
        (&["-f", "-c", "{file}"][..], RINETD_FILE, "--version"),
        (socat, "", "-V"),
        (&["-db", "-f", "{file}"], HAPROXY_FILE, "-v"),
    ];
    let others = OTHERS.into_iter().zip(others);
    let others = others.map(|(name, (arguments, file, version))| Contender {
        name,
        program: find(name),
        arguments,
        file,
        version,
        published_gbps: None,
    });
    let mut absent = BTreeMap::new();
    let mut present: Vec<_> = convoy.into_iter().chain(others).collect();
    present.retain(|one| {
        let is_there = one.program.is_file();
        if !is_there {
            let why = format!("not installed (fix: apt-get install {})", one.name);
            absent.insert(one.name.to_owned(), why);
        }
        is_there
    });
    (present, absent)
}

impl Contender {
    /// The line that it prints about itself.
    pub(super) fn version(&self) -> Option<String> {
        let output = Command::new(&self.program)
            .arg(self.version)
            .output()
            .ok()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut lines = printed.lines();
        let line = lines.find(|line| line.contains(|letter: char| letter.is_ascii_digit()))?;
        Some(line.to_owned())
    }

    /// Its arguments.
    pub(super) fn words(&self, file: &Path) -> Vec<String> {
        let file = file.display().to_string();
        let words = self.arguments.iter();
        words
            .map(|word| filled(word).replace("{file}", &file))
            .collect()
    }

    /// The contents of its file.
    pub(super) fn file(&self) -> String {
        filled(self.file)
    }
}

fn filled(text: &str) -> String {
    text.replace("{from}", &RIGHT.to_string())
        .replace("{to}", &LEFT.to_string())
        .replace("{port}", &PORT.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_or_file_has_an_unfilled_place() {
        let here = std::env::current_exe().unwrap();
        let (present, absent) = all(&here);
        assert_eq!(present.len() + absent.len(), WAYS.len() + OTHERS.len());
        for one in present {
            let text = one.words(Path::new("/f")).concat() + &one.file();
            let places = ["{file}", "{from}", "{to}", "{port}"];
            assert!(!places.iter().any(|place| text.contains(place)), "{text}");
        }
    }
}
