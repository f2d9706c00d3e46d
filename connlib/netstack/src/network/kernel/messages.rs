//! Several messages in one call, and several datagrams in one message.

use std::{
    fmt,
    io::{self, IoSlice},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    sys::socket::{
        ControlMessage, MsgFlags, SockaddrStorage, getsockopt, sendmsg, setsockopt,
        sockopt::{RcvBuf, UdpGroSegment, UdpGsoSegment},
    },
};

use crate::network::{
    batch::{DISTANCE, LONGEST_MESSAGE, MESSAGES},
    train::{MAX_SEGMENTS, Message, Train},
};

/// Bytes that may wait at a socket, with the kernel's overhead; it grants less if `net.core.rmem_max` is less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Prepares a socket for [`Headers::receive`], without which messages could not be cut.
pub(crate) fn prepare(socket: impl AsFd) {
    // Linux before 5.0 has no such option and joins nothing.
    let _ = setsockopt(&socket, UdpGroSegment, &true);
    // A small buffer is no reason to forward nothing.
    let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER);
}

/// The arguments of recvmmsg(2), kept between calls: to clear them takes as long as to receive a datagram.
pub(crate) struct Headers(Box<Arguments>);

struct Arguments {
    headers: [libc::mmsghdr; MESSAGES],
    rooms: [libc::iovec; MESSAGES],
    names: [libc::sockaddr_in6; MESSAGES],
    controls: [Control; MESSAGES],
}

/// A control message as `UDP_GRO` makes it; the sockets have no other.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    segment_len: libc::c_int,
}

impl Default for Headers {
    fn default() -> Self {
        // SAFETY: all of it is integers and pointers, and may be zero.
        Self(unsafe { Box::new_zeroed().assume_init() })
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers").finish_non_exhaustive()
    }
}

impl Headers {
    /// Receives the messages that are there and fit the storage, each at a multiple of [`DISTANCE`].
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        storage: &mut [u8],
        messages: &mut Vec<Message>,
    ) -> io::Result<()> {
        let count = self.prepare(storage);
        let headers = &mut self.0.headers[..count];
        // SAFETY: each header points to memory that lives longer than the call, with its length.
        let arrived = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let arrived = Errno::result(arrived)? as usize;
        messages.extend((0..arrived).map(|index| self.message(index)));
        Ok(())
    }

    fn prepare(&mut self, storage: &mut [u8]) -> usize {
        let Arguments {
            headers,
            rooms,
            names,
            controls,
        } = &mut *self.0;
        let mut count = 0;
        for (index, room) in storage
            .chunks_exact_mut(DISTANCE)
            .enumerate()
            .take(MESSAGES)
        {
            rooms[index] = libc::iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: LONGEST_MESSAGE,
            };
            let header = &mut headers[index].msg_hdr;
            header.msg_iov = &raw mut rooms[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as _;
            header.msg_control = (&raw mut controls[index]).cast();
            header.msg_controllen = size_of::<Control>() as _;
            count = index + 1;
        }
        count
    }

    fn message(&self, index: usize) -> Message {
        let header = &self.0.headers[index];
        let length = header.msg_len as usize;
        let is_joined = header.msg_hdr.msg_controllen >= size_of::<libc::cmsghdr>() as _;
        Message {
            from: address(&self.0.names[index]),
            start: index * DISTANCE,
            length,
            segment_len: match self.0.controls[index].segment_len {
                each @ 1.. if is_joined => length.min(each as usize),
                _ => length,
            },
        }
    }
}

fn address(name: &libc::sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(name.sin6_port);
    if i32::from(name.sin6_family) == libc::AF_INET {
        // A `sockaddr_in` has its address here.
        let address = Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes());
        return (address, port).into();
    }
    let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
    SocketAddrV6::new(address, port, name.sin6_flowinfo, name.sin6_scope_id).into()
}

/// Sends all of a train, or nothing.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    train: &Train<'_>,
    to: Option<SocketAddr>,
) -> io::Result<usize> {
    if !can_segment(socket) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut slices = [IoSlice::new(&[]); MAX_SEGMENTS];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(train.pieces()) {
        *slice = IoSlice::new(piece);
        count += 1;
    }
    let segment_len = train.segment_len() as u16;
    let control = [ControlMessage::UdpGsoSegments(&segment_len)];
    let to = to.map(SockaddrStorage::from);
    let sent = sendmsg(
        socket.as_raw_fd(),
        &slices[..count],
        &control,
        MsgFlags::MSG_DONTWAIT,
        to.as_ref(),
    );
    Ok(sent?)
}

/// Whether the kernel knows `UDP_SEGMENT`. One before 4.18 would ignore it, and send one long datagram.
fn can_segment(socket: BorrowedFd<'_>) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| getsockopt(&socket, UdpGsoSegment).is_ok())
}
