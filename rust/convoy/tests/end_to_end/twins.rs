//! Convoy and the reference side by side, each in its own namespace, given the same commands.

use std::{
    env, fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    thread,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_lab::{
    Lab, Namespace, Turn,
    wireguard::{Daemon, Implementation},
};
use x25519_dalek::{PublicKey, StaticSecret};

use crate::scene::{DEADLINE, convoy, lab};

/// The interfaces that each of them has.
pub(crate) const INTERFACES: [&str; 2] = ["wg0", "wg1"];

/// Two namespaces with one daemon per interface in each; all links are down.
pub(crate) struct Twins {
    pub(crate) convoy: Twin,
    pub(crate) reference: Twin,
    _lab: Lab,
    _turn: Turn,
}

/// Convoy, or the reference.
pub(crate) struct Twin {
    pub(crate) namespace: Namespace,
    /// One per interface.
    pub(crate) daemons: [Daemon; 2],
}

/// The reference: `wireguard-go`, or the program that `CONVOY_TEST_REFERENCE` names.
pub(crate) fn reference() -> Implementation {
    let program = env::var_os("CONVOY_TEST_REFERENCE");
    Implementation::new(program.unwrap_or_else(|| "wireguard-go".into()))
}

impl Twins {
    /// `None` if the machine cannot provide them; the caller then skips its test.
    pub(crate) fn new() -> Option<Self> {
        let (turn, lab) = lab(&["wg", "wireguard-go"])?;
        Some(Self {
            convoy: Twin::start(&lab, "convoy", &convoy()),
            reference: Twin::start(&lab, "reference", &reference()),
            _lab: lab,
            _turn: turn,
        })
    }

    /// Runs the shell command `line` on both, requires the same outcome and returns the output.
    /// Lines and paragraphs are sorted where their order may differ.
    pub(crate) fn same(&self, line: &str) -> String {
        let [ours, theirs] = self.both(line).map(|said| sorted(&said));
        assert_eq!(
            ours, theirs,
            "Convoy and the reference differ after: {line}"
        );
        ours
    }

    /// Requires the same answer from both to each of these `wg` commands.
    pub(crate) fn show_the_same(&self, forms: &[&str], after: &str) {
        const MARK: &str = "=====";
        let script: String = forms
            .iter()
            .map(|form| format!("said=$(wg {form}); echo \"$?\n\n$said\n{MARK}\"; "))
            .collect();
        let [ours, theirs] = self.both(&script);
        let pairs = ours.split(MARK).zip(theirs.split(MARK));
        assert_eq!(pairs.clone().count(), forms.len() + 1);
        for ((ours, theirs), form) in pairs.zip(forms) {
            assert_eq!(sorted(ours), sorted(theirs), "wg {form}, after: {after}");
        }
    }

    /// Runs a shell command on both at once; returns what Convoy and what the reference said.
    fn both(&self, line: &str) -> [String; 2] {
        thread::scope(|scope| {
            let reference = scope.spawn(|| self.reference.shell(line));
            [self.convoy.shell(line), reference.join().unwrap()]
        })
    }

    /// Writes `text` to the file `name` of both.
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

    /// Runs a shell command; returns its exit status and output.
    pub(crate) fn shell(&self, line: &str) -> String {
        let mut shell = self.namespace.command("sh");
        let script = format!("cd /run; exec 2>&1; {line}");
        let output = shell.args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        format!("{}\n\n{said}", output.status.code().unwrap())
    }
}

/// Sends `request`, shuts down writing and reads all answers.
pub(crate) fn ask(daemon: &Daemon, request: &[u8]) -> Vec<u8> {
    ask_at(daemon.socket(), request)
}

pub(crate) fn ask_at(socket: &Path, request: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The daemon may close the connection before it has read everything.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// A private key in the format of `wg`, the same in every run.
pub(crate) fn private_key(number: u8) -> String {
    BASE64_STANDARD.encode([number; 32])
}

/// Its public key.
pub(crate) fn public_key(number: u8) -> String {
    let private = StaticSecret::from([number; 32]);
    BASE64_STANDARD.encode(PublicKey::from(&private))
}

/// Sorts the paragraphs after the first one or, if there is only one, its lines: the reference
/// lists peers in the random order of a Go map.
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
