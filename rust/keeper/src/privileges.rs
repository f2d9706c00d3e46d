//! The hidden command `convoy tunnel-process`: takes the settings and descriptors that a supervisor hands over, and
//! becomes the daemon, which gives up its privileges ([`convoy_daemon`]).
//!
//! A service manager that starts the process has already given it a user and capabilities. Its standard input is
//! then the socket on which the supervisor connects.

use std::{
    env, io,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
};

use anyhow::{Context, bail};
use clap::Args;
use convoy_daemon::{
    args::DeviceName,
    start_supervised,
    supervised::start::{HandedOver, Start},
};
use convoy_metrics::MetricsArgs;
use convoy_process::{
    background::Parent,
    message::{self, Lost},
};
use nix::sys::socket::{getsockopt, sockopt};

/// The arguments of the hidden `convoy tunnel-process`.
#[derive(Debug, Args)]
pub struct TunnelProcessArgs {
    #[arg(value_name = "IFACE")]
    pub(crate) interface: DeviceName,
}

/// Becomes the tunnel process; returns when the tunnel has ended. Call it while the process has one thread.
pub fn run(args: &TunnelProcessArgs) -> anyhow::Result<()> {
    let socket = supervisor().context("cannot wait for the supervisor")?;
    let (start, handed_over) = match receive(&socket) {
        Ok(received) => received,
        Err(error @ Lost::Invalid(_)) => Parent::of(socket)?.fail(format!(
            "its program is of another version than its supervisor: {error}"
        )),
        Err(_) => bail!("this is a step of `convoy up`: run that instead"),
    };
    for (name, value) in &start.log {
        // SAFETY: the process has one thread.
        unsafe { env::set_var(name, value) };
    }
    let supervisor = Parent::of(socket)?;
    start_supervised::<MetricsArgs>(&args.interface, &start, handed_over, supervisor)
}

fn receive(supervisor: &UnixStream) -> Result<(Start, HandedOver), Lost> {
    let (start, descriptors) = message::receive(supervisor)?;
    let descriptors = HandedOver::try_from(descriptors);
    let descriptors = descriptors.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((start, descriptors))
}

/// The connection to the supervisor.
fn supervisor() -> io::Result<UnixStream> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    if !getsockopt(&stdin, sockopt::AcceptConn).unwrap_or(false) {
        return Ok(stdin.into());
    }
    let (connection, _) = UnixListener::from(stdin).accept()?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn settings_arrive_with_three_descriptors() {
        let settings = r#"{"options":{"gso":"auto","tun_offload":"on","udp_gro":"off","aead":"ring","batch":7,
            "clamp_mss":true,"log_format":"json"},"outlives_supervisor":true,"inner_mtu":1420,"has_outer":false,
            "log":{"RUST_LOG":"a\nb=debug"}}"#;
        let start: Start = serde_json::from_str(settings).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        message::send(&ours, &start, &[ours.as_fd(); 3]).unwrap();
        assert_eq!(receive(&theirs).unwrap().0, start);
        for descriptors in [&[][..], &[ours.as_fd(); 2]] {
            message::send(&ours, &start, descriptors).unwrap();
            assert!(matches!(receive(&theirs), Err(Lost::Io(_))));
        }
        drop(ours);
        assert!(matches!(receive(&theirs), Err(Lost::Closed)));
    }

    #[test]
    fn settings_of_another_version_are_refused_by_name() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"{\"has_outer\":true,\"is_quick\":true}\n")
            .unwrap();
        let refused = receive(&theirs).unwrap_err();
        assert!(matches!(refused, Lost::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("`is_quick`"), "{refused}");
    }
}
