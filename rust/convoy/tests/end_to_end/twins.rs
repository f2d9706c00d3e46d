//! Convoy and the reference side by side: each in a namespace of its own, told the same.

use std::{
    env, fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
    sync::MutexGuard,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_lab::{
    Lab, Namespace,
    wireguard::{Daemon, Implementation},
};

use crate::scene::{DEADLINE, convoy, lab};

/// The interfaces of both.
pub(crate) const INTERFACES: [&str; 2] = ["wg0", "wg1"];

/// Two namespaces, with a daemon an interface in each; all links are down.
pub(crate) struct Twins {
    pub(crate) convoy: Twin,
    pub(crate) reference: Twin,
    _lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

/// Convoy, or the reference.
pub(crate) struct Twin {
    pub(crate) namespace: Namespace,
    /// One an interface.
    pub(crate) daemons: [Daemon; 2],
}

/// The reference: `wireguard-go`, or what `CONVOY_TEST_REFERENCE` names.
pub(crate) fn reference() -> Implementation {
    let program = env::var_os("CONVOY_TEST_REFERENCE");
    Implementation::new(program.unwrap_or_else(|| "wireguard-go".into()))
}

impl Twins {
    /// `None` where there cannot be any: then the test is to be skipped.
    pub(crate) fn new() -> Option<Self> {
        let (lab, turn) = lab(&["wg", "wireguard-go"])?;
        Some(Self {
            convoy: Twin::start(&lab, "convoy", &convoy()),
            reference: Twin::start(&lab, "reference", &reference()),
            _lab: lab,
            _turn: turn,
        })
    }

    /// Both must do the same when told `line` by a shell; where it may be in another order,
    /// lines and paragraphs are sorted. Returns what both said.
    pub(crate) fn same(&self, line: &str) -> String {
        let [ours, theirs] = [&self.convoy, &self.reference].map(|twin| sorted(&twin.shell(line)));
        assert_eq!(
            ours, theirs,
            "Convoy and the reference differ after: {line}"
        );
        ours
    }

    /// Both must answer the same to each of `forms` of `wg`.
    pub(crate) fn show_the_same(&self, forms: &[&str], after: &str) {
        const MARK: &str = "=====";
        let script: String = forms
            .iter()
            .map(|form| format!("said=$(wg {form}); echo \"$?\n\n$said\n{MARK}\"; "))
            .collect();
        let [ours, theirs] = [&self.convoy, &self.reference].map(|twin| twin.shell(&script));
        let pairs = ours.split(MARK).zip(theirs.split(MARK));
        assert_eq!(pairs.clone().count(), forms.len() + 1);
        for ((ours, theirs), form) in pairs.zip(forms) {
            assert_eq!(sorted(ours), sorted(theirs), "wg {form}, after: {after}");
        }
    }

    /// Puts `text` into the file `name` of both.
    pub(crate) fn write(&self, name: &str, text: &str) {
        for twin in [&self.convoy, &self.reference] {
            fs::write(twin.namespace.run_directory().join(name), text).unwrap();
        }
    }
}

impl Twin {
    fn start(lab: &Lab, label: &str, implementation: &Implementation) -> Self {
        let namespace = lab.namespace(label).unwrap();
        let daemons = INTERFACES
            .map(|interface| Daemon::start(&namespace, implementation, interface).unwrap());
        Self { namespace, daemons }
    }

    /// How a shell ends, and what it has said.
    pub(crate) fn shell(&self, line: &str) -> String {
        let mut shell = self.namespace.command("sh");
        let script = format!("cd /run; exec 2>&1; {line}");
        let output = shell.args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        format!("{}\n\n{said}", output.status.code().unwrap())
    }
}

/// Sends `request`, says that there will be no more, and reads all answers.
pub(crate) fn ask(daemon: &Daemon, request: &[u8]) -> Vec<u8> {
    ask_at(daemon.socket(), request)
}

pub(crate) fn ask_at(socket: &Path, request: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // A daemon may end the connection before it has all.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// A private key that is the same in every run, as `wg` reads it.
pub(crate) fn private_key(number: u8) -> String {
    BASE64_STANDARD.encode([number; 32])
}

/// Its public key.
pub(crate) fn public_key(number: u8) -> String {
    let command = format!("echo {} | wg pubkey", private_key(number));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The order of peers is a Go map's: sorts the paragraphs behind the first one or, where there is
/// only one, its lines.
fn sorted(text: &str) -> String {
    let (first, rest) = text
        .trim_matches('\n')
        .split_once("\n\n")
        .unwrap_or((text, ""));
    let separator = match rest.contains("\n\n") {
        true => "\n\n",
        false => "\n",
    };
    // `wg show all endpoints` names the interface only before the first of its peers.
    let without_interface = |part| INTERFACES.iter().fold(part, without_name);
    let mut parts: Vec<_> = rest.split(separator).map(without_interface).collect();
    parts.sort_unstable();
    format!("{first}\n\n{}", parts.join(separator))
}

fn without_name<'a>(line: &'a str, name: &&str) -> &'a str {
    let rest = line.strip_prefix(name);
    rest.and_then(|rest| rest.strip_prefix('\t'))
        .unwrap_or(line)
}
