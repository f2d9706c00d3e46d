//! The hidden step between a supervisor and its tunnel: `convoy tunnel-process` takes the descriptors that the
//! supervisor hands over and executes this program again as the daemon, which gives up its privileges
//! ([`convoy_daemon`]). It gives them up no earlier because other users may be unable to execute the program's file.
//!
//! A service manager that starts the process has already given it a user and capabilities. Its standard input is
//! then the socket on which the supervisor connects.

use std::{
    convert::Infallible,
    env,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    process::{self, Command},
};

use anyhow::{Context, bail};
use clap::Args;
use convoy_daemon::{HANDED_OVER, args::DeviceName};
use convoy_metrics::DaemonArgs;
use convoy_process::{PROGRAM, descriptors, logging};
use nix::{
    sys::socket::{getsockopt, sockopt},
    unistd::dup2_stdin,
};
use rustix::io::{FdFlags, fcntl_setfd};
use tracing::debug;

use crate::tunnel::Step;

/// The arguments of the hidden `convoy tunnel-process`: the daemon's.
#[derive(Debug, Args)]
pub struct TunnelProcessArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,

    #[arg(value_name = "IFACE")]
    pub(crate) interface: DeviceName,
}

/// The device and inode number of the stream to systemd's journal.
const JOURNAL: &str = "JOURNAL_STREAM";

/// Longest line with a [`Step`] in bytes.
const MAX_STEP: usize = 64 << 10;

/// Becomes the tunnel process; returns only on error, which it also reports to the supervisor.
pub fn run(args: &TunnelProcessArgs) -> anyhow::Result<()> {
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
        // The same arguments as ours, without the name of this step.
        b"" => command.args(env::args_os().skip(2)),
        line => {
            let step: Step = serde_json::from_slice(line).context("cannot read the line")?;
            let command = command.args(step.arguments);
            command.env_clear().envs(step.environment);
            // The supervisor's log may be another stream than this service's.
            command.envs(env::var_os(JOURNAL).map(|stream| (JOURNAL, stream)))
        }
    };
    for (name, descriptor) in HANDED_OVER.into_iter().zip(&descriptors) {
        fcntl_setfd(descriptor, FdFlags::empty()).context("cannot hand a descriptor over")?;
        command.env(name, descriptor.as_raw_fd().to_string());
    }
    Err(command.exec()).context("cannot execute this program again as the tunnel")
}

/// Receives the descriptors and the line that comes with them.
fn receive(mut supervisor: &UnixStream) -> io::Result<(Vec<OwnedFd>, Vec<u8>)> {
    let mut line = vec![0; MAX_STEP];
    let (mut length, descriptors) = descriptors::receive(supervisor, &mut line)?;
    let descriptors = descriptors.unwrap_or_default();
    while !line[..length].ends_with(b"\n") {
        match supervisor.read(&mut line[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    line.truncate(length);
    match descriptors.len() == HANDED_OVER.len() {
        true => Ok((descriptors, line)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
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
            descriptors::send(&ours, b"{\"arguments\":", &three).unwrap();
            ours.write_all(b"[]}\n").unwrap();
            received.join().unwrap()
        });
        let (descriptors, line) = received.unwrap();
        assert_eq!(descriptors.len(), 3);
        assert_eq!(line, b"{\"arguments\":[]}\n");
        // Duplicates of `ours`, which would keep the connection open.
        drop(descriptors);
        for descriptors in [&[][..], &[ours.as_fd(); 2]] {
            descriptors::send(&ours, b"\n", descriptors).unwrap();
            receive(&theirs).unwrap_err();
        }
        ours.write_all(b"no line").unwrap();
        drop(ours);
        receive(&theirs).unwrap_err();
    }
}
