//! A name server.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Child,
};

use convoy_lab::{Namespace, Pid, eventually};
use nix::sys::signal::{Signal, kill};

use crate::scene::DEADLINE;

/// Log message of dnsmasq once it has read its names.
const READ: &str = "read /run/names";

/// dnsmasq; ends when dropped.
pub(super) struct NameServer {
    child: Child,
    directory: PathBuf,
}

impl NameServer {
    /// Answers at `address` with `names`, in the format of hosts(5).
    pub(super) fn start(place: &Namespace, address: &str, names: &str) -> Self {
        let directory = place.run_directory();
        fs::write(directory.join("names"), names).unwrap();
        let _ = fs::remove_file(directory.join("questions"));
        let mut command = place.command("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
        ]);
        command.args(["--no-resolv", "--no-hosts", "--addn-hosts=/run/names"]);
        command.args(["--cache-size=0", "--local-ttl=0", "--local=/example.org/"]);
        command.args(["--bind-interfaces", "--except-interface=lo"]);
        command.args(["--log-queries", "--log-facility=/run/questions"]);
        command.args(["--pid-file=/run/dnsmasq.pid", "--listen-address", address]);
        let errors = directory.join("errors");
        let mut spawn = || {
            let errors = File::create(&errors).unwrap();
            command.stderr(errors).spawn().unwrap()
        };
        let child = spawn();
        let mut server = Self { child, directory };
        let is_ready = || {
            // A program that another thread was just starting still had a copy of an old server's socket.
            if server.child.try_wait().unwrap().is_some() {
                server.child = spawn();
            }
            server.log().contains(READ).then_some(())
        };
        let ready = eventually(DEADLINE, is_ready);
        assert!(ready.is_some(), "{}", server.log());
        server
    }

    /// From now on it answers with these names.
    pub(super) fn change(&self, names: &str) {
        let before = self.log().matches(READ).count();
        fs::write(self.directory.join("names"), names).unwrap();
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGHUP).unwrap();
        self.has_logged(READ, before + 1);
    }

    /// Returns how often it was asked for this name.
    pub(super) fn questions(&self, name: &str) -> usize {
        let log = self.log();
        let is_question = |line: &&str| line.contains(": query[") && line.contains(name);
        log.lines().filter(is_question).count()
    }

    /// Waits until it was asked for this name more often than that.
    pub(super) fn is_asked(&self, name: &str, before: usize) {
        let is_asked = || (self.questions(name) > before).then_some(());
        let asked = eventually(3 * DEADLINE, is_asked);
        assert!(asked.is_some(), "nobody asked for {name}: {}", self.log());
    }

    fn has_logged(&self, text: &str, count: usize) {
        let has = || (self.log().matches(text).count() >= count).then_some(());
        assert!(eventually(DEADLINE, has).is_some(), "{}", self.log());
    }

    fn log(&self) -> String {
        let files = ["errors", "questions"].map(|name| self.directory.join(name));
        files
            .map(|file| fs::read_to_string(file).unwrap_or_default())
            .concat()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
