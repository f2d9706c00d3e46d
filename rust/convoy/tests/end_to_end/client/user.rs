//! The user: what it starts, and what is left of it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
};

use convoy_lab::{Pid, Turn, eventually};

use super::world::{EVERYTHING, World};
use crate::scene::{DEADLINE, convoy_program, processes};

pub(super) const USER: u32 = 7_777;
pub(super) const FILE: &str = "/etc/wg0.conf";
/// Where the program lies, as its own directory may be open to root alone; and the user's directory.
pub(super) const PROGRAM: &str = "/run/program";
pub(super) const RUNTIME: &str = "/run/user/7777";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A world whose client's user has a file with these lines, and may open `/dev/net/tun`.
pub(super) fn world(interface: &str) -> Option<World> {
    world_with(interface, &[])
}

pub(super) fn world_with(interface: &str, programs: &[&str]) -> Option<World> {
    world_of(interface, EVERYTHING, programs)
}

/// The same with other peers.
pub(super) fn world_of(interface: &str, peers: &str, programs: &[&str]) -> Option<World> {
    // What is left of the user is looked for on the whole machine.
    let turn = Turn::of_user(USER);
    let world = World::in_turn(turn, &[&["setpriv", "dnsmasq"][..], programs].concat())?;
    world.configure(interface, peers);
    world.shell(&format!(
        "mkdir -p {RUNTIME}/shared; touch {PROGRAM}; mount --bind '{}' {PROGRAM}
         mv /etc/wireguard/wg0.conf {FILE}; chown -R {USER} {FILE} {RUNTIME}
         mount -t tmpfs -o mode=755 tmpfs /dev/net; mknod -m 666 /dev/net/tun c 10 200",
        convoy_program().display()
    ));
    Some(world)
}

/// A program that the user starts at the client, in `/etc`.
pub(super) fn user(world: &World, program: &str) -> Command {
    let mut command = world.client.command("setpriv");
    let ids = [format!("--reuid={USER}"), format!("--regid={USER}")];
    command
        .args(ids)
        .args(["--clear-groups", "--inh-caps=-all"]);
    command.args(["env", "-C", "/etc", program]);
    // Root's has directories that this user may not search.
    command.env("XDG_RUNTIME_DIR", RUNTIME).env("PATH", PATH);
    command
}

pub(super) fn exec(world: &World, words: &[&str]) -> Output {
    let mut command = user(world, PROGRAM);
    command.args(["exec", FILE, "--"]).args(words);
    command.output().unwrap()
}

pub(super) fn shell(world: &World, script: &str) -> Output {
    exec(world, &["sh", "-c", script])
}

pub(super) fn said(outcome: &Output) -> String {
    succeeds(outcome);
    String::from_utf8(outcome.stdout.clone()).unwrap()
}

pub(super) fn succeeds(outcome: &Output) {
    assert!(outcome.status.success(), "{outcome:?}");
}

pub(super) fn error(outcome: &Output) -> String {
    String::from_utf8_lossy(&outcome.stderr).into_owned()
}

/// A shell of `convoy exec` that runs; killed when dropped.
pub(super) struct Started {
    pub(super) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Started {
    pub(super) fn new(world: &World, script: &str) -> Self {
        let mut command = user(world, PROGRAM);
        command.args(["exec", FILE, "--", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The next line that it writes.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns what it writes up to a line `end`, after it got one.
    pub(super) fn until(&mut self, end: &str) -> String {
        self.stdin.write_all(b"\n").unwrap();
        let mut text = String::new();
        loop {
            match self.line() {
                line if line == end => return text,
                line => text += &format!("{line}\n"),
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process at the client whose second word begins so.
pub(super) fn convoy(world: &World, word: &str) -> Option<Pid> {
    let is_it = |pid: &Pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0')
            .nth(1)
            .is_some_and(|it| it.starts_with(word))
    };
    processes(&world.client).into_iter().find(is_it)
}

/// The tunnel process, which may be just being started.
pub(super) fn daemon(world: &World) -> Pid {
    eventually(DEADLINE, || convoy(world, "tunnel-process")).unwrap()
}

pub(super) fn supervisor(world: &World) -> Pid {
    eventually(DEADLINE, || convoy(world, "exec-supervisor")).unwrap()
}

/// The holder of the namespaces that a process is in.
pub(super) fn holder(inside: Pid) -> Pid {
    let network = |pid: Pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let is_holder = |pid: &Pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("namespace-holder") && network(*pid) == network(inside)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).find(is_holder).unwrap()
}

/// Waits until neither a process nor a socket is left.
pub(super) fn nothing_is_left(world: &World) {
    no_process_is_left();
    let files = || world.shell(&format!("ls {RUNTIME}/convoy 2>/dev/null || true"));
    let is_empty = || files().is_empty().then_some(());
    assert!(eventually(DEADLINE, is_empty).is_some(), "{}", files());
}

/// Waits until the user has no process any more.
pub(super) fn no_process_is_left() {
    let left = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let is_of_user = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains(&format!("Uid:\t{USER}")) && !status.contains("State:\tZ")
        };
        let pids = pids.filter(is_of_user);
        pids.map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")))
            .collect::<Vec<_>>()
    };
    let is_over = || left().is_empty().then_some(());
    assert!(eventually(DEADLINE, is_over).is_some(), "{:?}", left());
}
