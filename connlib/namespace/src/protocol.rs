//! Messages of owner and holder: a length, JSON, and descriptors that come with the length.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use convoy_netlink::NetlinkError;
use convoy_process::descriptors;
use convoy_tun::OpenError;
use nix::errno::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::settings::Settings;

/// Longest message in bytes: half a million routes.
const MAX_BYTES: usize = 64 << 20;

/// A request of the owner.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Request {
    /// The first request.
    SetUp(Settings),
    Sockets {
        kind: SocketKind,
        ipv6: bool,
        count: usize,
    },
}

/// The holder's answer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    /// With the namespaces, the TUN, and for a gateway the inlet and its listeners.
    Ready {
        warnings: Vec<String>,
    },
    /// With the sockets.
    Sockets,
    Refused(Refusal),
}

/// Why the holder does not do it; numbers are the kernel's.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Refusal {
    Tun { reason: String, fix: Option<String> },
    Gateway { reason: String, fix: String },
    Step { doing: String, error: i32 },
    Socket(i32),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum SocketKind {
    Tcp,
    Udp,
}

impl Refusal {
    /// Says why the TUN cannot be opened.
    pub(super) fn of_tun(error: &OpenError) -> Self {
        Self::Tun {
            reason: error.reason(),
            fix: error.fix(),
        }
    }

    /// Names the step during which a system call failed.
    pub(super) fn at(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Step {
            doing: doing.into(),
            error: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Names the step during which the kernel refused a request of rtnetlink.
    pub(super) fn of_netlink(doing: impl Into<String>) -> impl FnOnce(NetlinkError) -> Self {
        |error| Self::at(doing)(error.cause)
    }
}

pub(super) fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let length = length.to_ne_bytes();
    let sent = descriptors::send(socket, &length, descriptors)?;
    socket.write_all(&length[sent..])?;
    socket.write_all(&text)
}

/// Waits for a message; `None` once the other end is closed.
///
/// # Errors
/// `EMFILE` if this process has no descriptors left for those that came with it; further messages can be received.
pub(super) fn receive<M: DeserializeOwned>(
    mut socket: &UnixStream,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let (received, descriptors) = descriptors::receive_available(socket, &mut length)?;
    if received == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut length[received..])?;
    let length = u32::from_ne_bytes(length) as usize;
    if length > MAX_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    let descriptors =
        descriptors.ok_or_else(|| io::Error::from_raw_os_error(Errno::EMFILE as i32))?;
    Ok(Some((serde_json::from_slice(&text)?, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors_and_the_end_is_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let request = Request::Sockets {
            kind: SocketKind::Udp,
            ipv6: true,
            count: 3,
        };
        let own = std::os::fd::AsFd::as_fd(&ours);
        send(&ours, &request, &[own, own]).unwrap();
        let (received, descriptors) = receive::<Request>(&theirs).unwrap().unwrap();
        assert_eq!(format!("{received:?}"), format!("{request:?}"));
        assert_eq!(descriptors.len(), 2);
        drop((descriptors, ours));
        assert!(receive::<Request>(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_length_without_measure_is_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&u32::MAX.to_ne_bytes()).unwrap();
        assert!(receive::<Request>(&theirs).is_err());
    }
}
