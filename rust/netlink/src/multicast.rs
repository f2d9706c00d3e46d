//! A netlink socket that only listens.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsRawFd, RawFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};
use rtnetlink::sys::{Socket, SocketAddr};
use tokio::io::unix::AsyncFd;

/// The largest datagram of netlink multicasts.
const DATAGRAM: usize = 32 * 1024;

/// The length of a netlink header.
pub(crate) const HEADER: usize = 16;

/// A netlink socket that has joined groups. The kernel's buffer bounds the queue.
pub(crate) struct Multicast {
    socket: AsyncFd<Socket>,
    datagram: Vec<u8>,
}

impl Multicast {
    /// Joins groups, of which each has a number up to 32.
    pub(crate) fn open(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        let groups = groups.iter().map(|group| 1 << (group - 1));
        socket.bind(&SocketAddr::new(0, groups.sum()))?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            // SAFETY: the socket owns its descriptor, and nothing else closes it.
            socket: unsafe { AsyncFd::register(socket) }?,
            datagram: vec![0; DATAGRAM],
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        self.socket.get_ref()
    }

    /// Waits for the next datagram; returns the network namespace that it is about, too, unless that is this one. May be
    /// cancelled.
    ///
    /// # Errors
    /// `ENOBUFS` if the kernel had to drop some, or one is too long; the next call goes on.
    pub(crate) async fn next(&mut self) -> io::Result<(&[u8], Option<i32>)> {
        let Self { socket, datagram } = self;
        let (length, namespace) = loop {
            let mut ready = socket.readable().await?;
            match ready.try_io(|socket| receive(socket.as_raw_fd(), datagram)) {
                Ok(received) => break received?,
                Err(_would_block) => continue,
            }
        };
        Ok((&datagram[..length], namespace))
    }
}

/// Returns a datagram's length, and its network namespace if that is not our own.
fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut control = cmsg_space!(libc::c_int);
    let message = recvmsg::<()>(
        socket,
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let namespace = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Unknown(control)
            if control.cmsg_header.cmsg_level == libc::SOL_NETLINK
                && control.cmsg_header.cmsg_type == libc::NETLINK_LISTEN_ALL_NSID =>
        {
            let bytes = control.data_bytes.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        }
        _ => None,
    });
    let is_cut = message.flags.contains(MsgFlags::MSG_TRUNC);
    if is_cut || message.bytes == 0 {
        return Err(Errno::ENOBUFS.into());
    }
    Ok((message.bytes, namespace))
}

/// Cuts a datagram into messages, of which each has its header.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_datagram_that_does_not_fit_is_lost_and_not_cut() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let mut buffer = [0; 32];
        let mut received = |length| {
            theirs.send(&vec![1; length]).unwrap();
            receive(ours.as_raw_fd(), &mut buffer)
        };
        assert_eq!(received(32).unwrap(), (32, None));
        let error = received(33).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!(received(1).unwrap(), (1, None));
    }
}
