//! The hidden step between a supervisor and its tunnel: `convoy tunnel-process` takes the descriptors that the
//! supervisor hands over, changes to a user of its own and executes this program again as the daemon.
//!
//! The second exec makes the process dumpable again, so that its owner's `perf` can attach: a mere change of
//! the user would hide the process from that user. Across it, ambient capabilities remain.
//!
//! A service manager that starts the process has already given it a user and capabilities. Its standard input is
//! then the socket on which the supervisor connects.

use std::{
    convert::Infallible,
    env, fs,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    process::{self, Command},
};

use anyhow::{Context, bail};
use caps::{CapSet, Capability, CapsHashSet};
use nix::{
    sys::{
        prctl,
        socket::{getsockopt, sockopt},
    },
    unistd::{Gid, Uid, dup2_stdin, geteuid, setgroups, setresgid, setresuid},
};
use rustix::io::{FdFlags, fcntl_setfd};
use tracing::{debug, warn};

use super::tunnel::Step;
use crate::{cli::TunnelProcessArgs, confine, logging, supervised};

/// This program, wherever it is by now, and whether or not its directories may be entered.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

/// The environment variables of the descriptors that the supervisor hands over, in its order.
const DESCRIPTORS: [&str; 3] = ["WG_TUN_FD", "WG_UAPI_FD", supervised::LISTENER];

/// The user of the tunnel, if the host has it.
const USER: &str = "convoy";

/// Otherwise the tunnel's user and group: a number that systemd's table leaves unused (60706 to 61183) and
/// Debian gives nobody without asking (<https://systemd.io/UIDS-GIDS/>).
const ANONYMOUS: Identity = Identity {
    user: Uid::from_raw(61111),
    group: Gid::from_raw(61111),
};

/// Needed until the daemon watches the UAPI socket, which belongs to root; either will do. The daemon then drops
/// it ([`confine`]).
const NEEDED_AT_FIRST: [Capability; 2] = [
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_DAC_OVERRIDE,
];

/// The device and inode number of the stream to systemd's journal.
const JOURNAL: &str = "JOURNAL_STREAM";

/// Longest line with a [`Step`] in bytes.
const MAX_STEP: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    user: Uid,
    group: Gid,
}

/// Becomes the tunnel process; returns only an error. Reports it to the supervisor, too.
pub(crate) fn run(args: &TunnelProcessArgs) -> anyhow::Result<()> {
    let mut supervisor = supervisor().context("cannot wait for the supervisor")?;
    let name = Some(args.interface.as_str());
    let outcome = logging::init(args.daemon.log_format, name).and_then(|()| {
        debug!("Becoming the tunnel process");
        execute(&supervisor)
    });
    let Err(error) = outcome;
    match write!(supervisor, "{error:#}") {
        Ok(()) => process::exit(1),
        Err(_) => Err(error),
    }
}

/// The connection to the supervisor. The daemon gets it as its standard input and reports there in turn.
fn supervisor() -> io::Result<UnixStream> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    if !getsockopt(&stdin, sockopt::AcceptConn).unwrap_or(false) {
        return Ok(stdin.into());
    }
    let (connection, _) = UnixListener::from(stdin).accept()?;
    dup2_stdin(&connection)?;
    Ok(connection)
}

fn execute(supervisor: &UnixStream) -> anyhow::Result<Infallible> {
    let Ok((descriptors, line)) = receive(supervisor) else {
        bail!("this is a step of `convoy up`: run that instead");
    };
    let mut command = Command::new(PROGRAM);
    let name = env::args_os().next();
    command.arg0(name.unwrap_or_else(|| "convoy".into()));
    match line.trim_ascii() {
        // The same as ours, less the name of this step.
        b"" => command.args(env::args_os().skip(2)),
        line => {
            let step: Step = serde_json::from_slice(line).context("cannot read the line")?;
            let command = command.args(step.arguments);
            command.env_clear().envs(step.environment);
            // The supervisor's log may be another stream than this service's.
            command.envs(env::var_os(JOURNAL).map(|stream| (JOURNAL, stream)))
        }
    };
    for (name, descriptor) in DESCRIPTORS.into_iter().zip(&descriptors) {
        fcntl_setfd(descriptor, FdFlags::empty()).context("cannot hand a descriptor over")?;
        command.env(name, descriptor.as_raw_fd().to_string());
    }
    change_user()?;
    Err(command.exec()).context("cannot execute this program again as the tunnel")
}

/// The descriptors, and the line that came with them.
fn receive(mut supervisor: &UnixStream) -> io::Result<(Vec<OwnedFd>, Vec<u8>)> {
    let mut line = vec![0; MAX_STEP];
    let (mut length, descriptors) = supervised::descriptors::receive(supervisor, &mut line)?;
    while !line[..length].ends_with(b"\n") {
        match supervisor.read(&mut line[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    line.truncate(length);
    match descriptors.len() == DESCRIPTORS.len() {
        true => Ok((descriptors, line)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Changes to the tunnel's own user and keeps the capabilities that it needs; leaves the caller's user where
/// that cannot be changed.
fn change_user() -> anyhow::Result<()> {
    if let Some(reason) = why_not() {
        debug!("The tunnel runs as the user of `convoy up`: {reason}");
        return Ok(());
    }
    let Identity { user, group } = identity();
    prctl::set_keepcaps(true).context("cannot keep capabilities")?;
    let changed = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    if let Err(errno) = changed {
        // For example a user namespace without this user.
        warn!(
            "the tunnel runs as the user of `convoy up`, as it cannot become user {user}: {errno}"
        );
        return Ok(());
    }
    keep_capabilities().context("cannot keep the tunnel's capabilities")
}

/// Why the user cannot be changed.
fn why_not() -> Option<&'static str> {
    let has = caps::read(None, CapSet::Effective).unwrap_or_default();
    let may_change = [Capability::CAP_SETUID, Capability::CAP_SETGID];
    if !geteuid().is_root() {
        return Some("that is not root");
    }
    if !may_change.iter().all(|it| has.contains(it)) {
        return Some("it lacks CAP_SETUID or CAP_SETGID");
    }
    let is_executable = |file: fs::Metadata| file.mode() & 0o001 != 0;
    if !fs::metadata(PROGRAM).is_ok_and(is_executable) {
        return Some("other users may not execute this program");
    }
    None
}

/// Does without the name service, which may wait for a network that is not up yet.
fn identity() -> Identity {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    entry_of(USER, &users).unwrap_or(ANONYMOUS)
}

/// The numbers of a user in the text of `/etc/passwd` (passwd(5)); never root's.
fn entry_of(name: &str, users: &str) -> Option<Identity> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        let mut number = fields.skip(1).map_while(|field| field.parse::<u32>().ok());
        let (user, group) = (number.next()?, number.next()?);
        (is_it && user != 0 && group != 0).then(|| Identity {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
        })
    })
}

/// Makes the tunnel's capabilities last across the exec, and no other.
fn keep_capabilities() -> anyhow::Result<()> {
    let has = caps::read(None, CapSet::Permitted)?;
    let wanted: CapsHashSet = confine::KEPT.into_iter().chain(NEEDED_AT_FIRST).collect();
    let kept: CapsHashSet = has.intersection(&wanted).copied().collect();
    if !kept.contains(&Capability::CAP_NET_ADMIN) {
        bail!("CAP_NET_ADMIN is missing: run `convoy up` as root");
    }
    // The change of the user has cleared them.
    caps::set(None, CapSet::Effective, &has)?;
    caps::set(None, CapSet::Inheritable, &kept)?;
    caps::set(None, CapSet::Ambient, &kept)?;
    if has.contains(&Capability::CAP_SETPCAP) {
        let bounding = caps::read(None, CapSet::Bounding)?;
        for capability in bounding {
            if !confine::KEPT.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_line_arrives_whole_with_three_descriptors() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let received = thread::scope(|scope| {
            let received = scope.spawn(|| receive(&theirs));
            let three = [ours.as_fd(); 3];
            supervised::descriptors::send(&ours, b"{\"arguments\":", &three).unwrap();
            ours.write_all(b"[]}\n").unwrap();
            received.join().unwrap()
        });
        let (descriptors, line) = received.unwrap();
        assert_eq!(descriptors.len(), 3);
        assert_eq!(line, b"{\"arguments\":[]}\n");
        // Duplicates of `ours`, which would keep the connection open.
        drop(descriptors);
        for descriptors in [&[][..], &[ours.as_fd(); 2]] {
            supervised::descriptors::send(&ours, b"\n", descriptors).unwrap();
            receive(&theirs).unwrap_err();
        }
        ours.write_all(b"no line").unwrap();
        drop(ours);
        receive(&theirs).unwrap_err();
    }

    #[test]
    fn a_user_is_found_by_its_whole_name_and_is_never_root() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\
                     convoyed:x:7:7::/:/bin/false\n\
                     broken\n\
                     convoy:x:998:997:Convoy:/nonexistent:/usr/sbin/nologin\n";
        let expected = Identity {
            user: Uid::from_raw(998),
            group: Gid::from_raw(997),
        };
        assert_eq!(entry_of("convoy", users), Some(expected));
        assert_eq!(entry_of("root", users), None);
        assert_eq!(entry_of("broken", users), None);
        assert_eq!(entry_of("convoy", "convoy:x:998:x:::\n"), None);
        assert_eq!(entry_of("convoy", "convoy:x:x:998:::\n"), None);
    }
}
