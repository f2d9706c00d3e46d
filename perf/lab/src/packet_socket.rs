//! Sockets below the IP stack (packet(7)): the frames of an interface, byte for byte.

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

use crate::{
    error::{Doing as _, LabError},
    namespace::Namespace,
};

/// No frame is longer: a super-packet with its Ethernet header.
const LONGEST_FRAME: usize = 14 + 65_535;
/// Room for the frames that come while nobody reads, in bytes.
const BUFFER_BYTES: usize = 64 * 1024 * 1024;

/// A packet socket on one interface: sends frames past every check of the IP stack, and hears the
/// frames that others send and receive there.
///
/// Frames begin as the interface has it: with an Ethernet header on a veth, with the IP header on a
/// TUN. Root is needed. Calls fail as the system calls do: `EMSGSIZE` for a frame longer than the
/// interface takes.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Hears everything that `interface` carries from now on, in either direction; can send, too.
    pub fn hearing(namespace: &Namespace, interface: &str) -> Result<Self, LabError> {
        Self::open(namespace, interface, (libc::ETH_P_ALL as u16).to_be())
    }

    /// Sends only: frames of others cost it nothing.
    pub fn sending(namespace: &Namespace, interface: &str) -> Result<Self, LabError> {
        Self::open(namespace, interface, 0)
    }

    fn open(namespace: &Namespace, interface: &str, protocol: u16) -> Result<Self, LabError> {
        let open = || -> io::Result<OwnedFd> {
            let index = if_nametoindex(interface)?;
            // Without a protocol it hears nothing until it is bound to its interface.
            let (packets, close) = (AddressFamily::Packet, SockFlag::SOCK_CLOEXEC);
            let socket = socket(packets, SockType::Raw, close, None)?;
            // Without CAP_NET_ADMIN over the whole machine, the default has to do.
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
        // Zero would wait for ever.
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
