//! strace(1): it lists a process's calls, and sends it a signal as it begins one of them.
//!
//! It follows neither children nor other threads, so that only the calls of the main thread count.

use std::{collections::HashMap, fmt, fs, path::PathBuf};

use nix::sys::signal::Signal;

use crate::{
    client::{outcome::Running, world::World},
    scene::convoy_program,
};

/// The calls by which a process changes something outside itself. Some processors lack those with a `?`.
const CALLS: &str = "trace=bind,?chmod,clone,?clone3,connect,fchmod,fchmodat,fchown,fdatasync,?fork,fsync,ftruncate,\
     ioctl,kill,?link,linkat,listen,?mkdir,mkdirat,pidfd_send_signal,pwrite64,?rename,?renameat,renameat2,?rmdir,\
     sendmsg,sendto,setsockopt,?symlink,symlinkat,?unlink,unlinkat,?vfork,write,writev";

/// Signs that a call changes nothing: queries of rtnetlink, wake-ups, log lines, questions about a terminal.
const HARMLESS: [&str; 5] = [
    "nlmsg_type=RTM_GET",
    "[eventfd]>",
    "/said-",
    "/out-",
    " TCGETS",
];

/// Printed once a process has stopped.
const STOPPED: &str = "--- stopped by SIGSTOP ---";

/// A call of a process.
#[derive(Clone, Debug)]
pub(super) struct Call {
    name: String,
    /// Which one of its name it is, counted from 1.
    nth: usize,
    /// Which line of the trace it is.
    pub(super) at: usize,
    /// As strace(1) shows it.
    pub(super) line: String,
}

/// Starts `convoy` under strace(1), and has it get a signal as it begins a call.
pub(super) fn start(world: &World, arguments: &[&str], signal: Option<(&Call, Signal)>) -> Running {
    let mut command = world.client.command("strace");
    command.args(["-y", "-s", "80", "-o", "/run/trace", "-e", CALLS]);
    if let Some((Call { name, nth, .. }, signal)) = signal {
        command.args(["-e", &format!("inject={name}:signal={signal}:when={nth}")]);
    }
    command.arg(convoy_program()).args(arguments);
    command.env_remove("LOG_LEVEL").env_remove("RUST_LOG");
    // What an earlier process left would be taken for news of this one.
    let _ = fs::remove_file(path(world));
    world.start_command(command)
}

/// The trace so far.
pub(super) fn text(world: &World) -> String {
    fs::read_to_string(path(world)).unwrap_or_default()
}

/// Returns whether the process has stopped.
pub(super) fn has_stopped(world: &World) -> bool {
    text(world).contains(STOPPED)
}

/// The calls that change something, in their order.
pub(super) fn calls(trace: &str) -> Vec<Call> {
    let mut counts = HashMap::<&str, usize>::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let Some(name) = line
            .split_once('(')
            .map(|(name, _)| name)
            .filter(|name| is_name(name))
        else {
            continue;
        };
        let count = counts.entry(name).or_default();
        *count += 1;
        if !HARMLESS.iter().any(|sign| line.contains(sign)) {
            calls.push(Call {
                name: name.to_owned(),
                nth: *count,
                at,
                line: line.to_owned(),
            });
        }
    }
    calls
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} number {}: {}", self.name, self.nth, self.line)
    }
}

fn path(world: &World) -> PathBuf {
    world.client.run_directory().join("trace")
}
