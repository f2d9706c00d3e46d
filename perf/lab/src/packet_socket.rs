//! Sockets below the IP stack (packet(7)): an interface's frames, byte for byte.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::error::{Doing as _, Result};
use crate::namespace::Namespace;

/// Size limit of a frame: a super-packet with its Ethernet header.
const LONGEST_FRAME: usize = 14 + 65_535;
/// Buffer for frames that wait to be read, in bytes.
const BUFFER_BYTES: usize = 64 * 1024 * 1024;

/// A packet socket on one interface. It sends frames past every check of the IP stack, and receives the
/// frames that others send and receive there.
///
/// Frames begin with an Ethernet header on a veth, and with the IP header on a TUN. It needs root. Calls
/// return the errors of their system calls: `EMSGSIZE` for a frame that is too long for the
/// interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Receives everything that passes `interface` from now on, in either direction; can also send.
    pub fn hearing(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::open(namespace, interface, (libc::ETH_P_ALL as u16).to_be())
    }

    /// Sends only, and so receives no frames of others.
    pub fn sending(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::open(namespace, interface, 0)
    }

    fn open(namespace: &Namespace, interface: &str, protocol: u16) -> Result<Self> {
        let open = || -> io::Result<OwnedFd> {
            let index = if_nametoindex(interface)?;
            // Without a protocol it receives nothing until it is bound to its interface.
            let (packets, close) = (AddressFamily::Packet, SockFlag::SOCK_CLOEXEC);
            let socket = socket(packets, SockType::Raw, close, None)?;
            // Without CAP_NET_ADMIN over the whole machine, the default size has to do.
            let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
            let address = address(index, protocol).ok_or(Errno::EINVAL)?;
            bind(socket.as_raw_fd(), &address)?;
            Ok(socket)
        };
        let step = format!("open a packet socket on {interface}");
        Ok(Self(namespace.run(open)?.doing(namespace.step(&step))?))
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// The next frame; `None` if none comes within `patience`.
    pub fn receive(&self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        // Zero would wait forever.
        let patience = TimeVal::microseconds(patience.as_micros().max(1) as i64);
        setsockopt(&self.0, sockopt::ReceiveTimeout, &patience)?;
        let mut frame = vec![0; LONGEST_FRAME];
        match recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(len) => {
                frame.truncate(len);
                Ok(Some(frame))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn address(interface: u32, protocol: u16) -> Option<LinkAddr> {
    // SAFETY: all zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = interface as i32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: it points to a `sockaddr_ll` of this length, and its family says so.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(len)) }
}
