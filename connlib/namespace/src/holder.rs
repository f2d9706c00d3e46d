//! The holder: sets the namespace up, makes sockets in it, and ends what is inside with its owner.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use convoy_process::message::{self, Lost};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{
    Settings, inside, mounts,
    network::{self, Made},
    protocol::{Answer, Refusal, Request, SocketKind},
    spaces::Spaces,
};

/// Becomes the holder that [`Namespace::start`](super::Namespace::start) has started; returns when its owner is gone.
///
/// # Errors
/// If the owner is not there to begin with.
pub fn hold() -> Result<(), Lost> {
    let owner = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (Request::SetUp(settings), _) = message::receive(&owner)? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    };
    match set_up(&settings) {
        Ok((warnings, made, spaces)) => {
            let [user, mounts, network] = spaces.descriptors();
            let mut descriptors = vec![user, mounts, network];
            descriptors.extend(made.descriptors());
            message::send(&owner, &Answer::Ready { warnings }, &descriptors)?;
            // The owner has all that now, and lets it go when it likes.
            drop(made);
            serve(&owner);
            inside::end_all(network);
            Ok(())
        }
        Err(refusal) => message::send(&owner, &Answer::Refused(refusal), &[]),
    }
}

fn set_up(settings: &Settings) -> Result<(Vec<String>, Made, Spaces), Refusal> {
    let mut warnings = Vec::new();
    if let Some(files) = &settings.files {
        mounts::make_private(files)?;
    }
    let made = network::set_up(settings)?;
    if let Err(error) = network::permit_ping() {
        warnings.push(format!("ping is not permitted inside: {error}"));
    }
    if let Err(error) = network::probe_paths() {
        warnings.push(format!("TCP does not probe for narrow paths: {error}"));
    }
    // The TUN's name and a socket are all that programs inside need; nothing of the host's is kept busy.
    std::env::set_current_dir("/").map_err(Refusal::at("leave the working directory"))?;
    let spaces = Spaces::own().map_err(Refusal::at("open the namespaces"))?;
    Ok((warnings, made, spaces))
}

/// Answers requests until the owner is gone.
fn serve(owner: &UnixStream) {
    while let Ok((Request::Sockets { kind, ipv6, count }, _)) = message::receive(owner) {
        let made: io::Result<Vec<_>> = (0..count).map(|_| make(kind, ipv6)).collect();
        let answered = match &made {
            Ok(sockets) => {
                let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                message::send(owner, &Answer::Sockets, &sockets)
            }
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                message::send(owner, &Answer::Refused(Refusal::Socket(error)), &[])
            }
        };
        if answered.is_err() {
            return;
        }
    }
}

fn make(kind: SocketKind, ipv6: bool) -> io::Result<OwnedFd> {
    let family = match ipv6 {
        true => AddressFamily::Inet6,
        false => AddressFamily::Inet,
    };
    let kind = match kind {
        SocketKind::Tcp => SockType::Stream,
        SocketKind::Udp => SockType::Datagram,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, kind, flags, None)?)
}
