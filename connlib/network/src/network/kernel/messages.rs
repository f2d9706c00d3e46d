//! Several messages in one call, and several datagrams in one message.

use std::{
    fmt,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    sys::socket::{
        ControlMessage, MsgFlags, SockaddrStorage, getsockname, getsockopt, sendmsg, setsockopt,
        sockopt::{
            IpRecvTos, Ipv4PacketInfo, Ipv6RecvPacketInfo, Ipv6RecvTClass, RcvBuf, UdpGroSegment,
            UdpGsoSegment,
        },
    },
};

use crate::network::train::{MAX_SEGMENTS, Message, Train};

/// Most messages that are received together.
pub(crate) const MESSAGES: usize = 64;
/// Bytes of the longest message, whether it is one datagram or several that the kernel has joined.
const LONGEST_MESSAGE: usize = 65_535;
/// Bytes between the beginnings of messages. At a power of two, all beginnings would share a few lines of the cache.
pub(crate) const DISTANCE: usize = LONGEST_MESSAGE + 1 + 576;
/// Bytes that may wait at a socket, with the kernel's overhead; it grants less if `net.core.rmem_max` is less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Prepares a socket for [`Headers::receive`], without which messages could not be cut.
pub(crate) fn prepare(socket: impl AsFd) {
    // Linux before 5.0 has no such option and joins nothing.
    let _ = setsockopt(&socket, UdpGroSegment, &true);
    // A small buffer is no reason to forward nothing.
    let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER);
    ask_for_classes(socket);
}

/// Makes the kernel report each message's traffic class.
pub(crate) fn ask_for_classes(socket: impl AsFd) {
    // A socket has one of them. Without it, marks of congestion are lost.
    let _ = setsockopt(&socket, IpRecvTos, &true);
    let _ = setsockopt(&socket, Ipv6RecvTClass, &true);
}

/// Makes the kernel report each message's destination address (`IP_PKTINFO`, ip(7)).
///
/// # Errors
/// The errors of setsockopt(2).
pub(crate) fn ask_for_destinations(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    match is_ipv6 {
        false => setsockopt(&socket, Ipv4PacketInfo, &true)?,
        true => setsockopt(&socket, Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// The arguments of recvmmsg(2), kept between calls: to clear them takes as long as to receive a datagram.
pub(crate) struct Headers(Box<Arguments>);

struct Arguments {
    headers: [libc::mmsghdr; MESSAGES],
    rooms: [libc::iovec; MESSAGES],
    names: [libc::sockaddr_in6; MESSAGES],
    controls: [Control; MESSAGES],
}

/// Control messages: one of `UDP_GRO`, one of `IP_PKTINFO` or `IPV6_PKTINFO`, and one of `IP_TOS` or `IPV6_TCLASS`.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

const CONTROL: usize = 2 * space(size_of::<libc::c_int>()) + space(size_of::<libc::in6_pktinfo>());

/// Bytes that a control message of this length takes.
const fn space(length: usize) -> usize {
    // SAFETY: it only computes.
    unsafe { libc::CMSG_SPACE(length as _) as usize }
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
        let mut message = Message {
            from: address(&self.0.names[index]),
            to: None,
            start: index * DISTANCE,
            length,
            segment_len: length,
            class: 0,
        };
        // SAFETY: the kernel has written control messages to the memory of the header, and their length into it.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header.msg_hdr) };
        while !next.is_null() {
            // SAFETY: as above; `next` is one of them.
            let ((level, kind), data) = unsafe {
                (
                    ((*next).cmsg_level, (*next).cmsg_type),
                    libc::CMSG_DATA(next),
                )
            };
            // SAFETY: a control message of this kind has a value of this type.
            unsafe { heed(&mut message, level, kind, data) };
            // SAFETY: as above.
            next = unsafe { libc::CMSG_NXTHDR(&raw const header.msg_hdr, next) };
        }
        message
    }
}

/// Records the content of a control message.
///
/// # Safety
/// `data` must point to the value of a control message of this kind.
unsafe fn heed(message: &mut Message, level: libc::c_int, kind: libc::c_int, data: *const u8) {
    match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) => {
            // SAFETY: our caller upholds it.
            let each = unsafe { data.cast::<libc::c_int>().read_unaligned() };
            if each > 0 {
                message.segment_len = message.length.min(each as usize);
            }
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: our caller upholds it.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            let local = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            message.to = Some(local.into());
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: our caller upholds it.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            let local = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // An answer cannot come from a group.
            message.to = Some(local.into()).filter(|_| !local.is_multicast());
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            // SAFETY: our caller upholds it.
            message.class = unsafe { data.read() };
        }
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // SAFETY: our caller upholds it.
            let class = unsafe { data.cast::<libc::c_int>().read_unaligned() };
            message.class = class as u8;
        }
        _ => {}
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

/// Sends all of a train, or nothing; `from` an address of this host, or from the one that the kernel chooses.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    train: &Train<'_>,
    to: Option<SocketAddr>,
    from: Option<IpAddr>,
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
    let ends = (to, from);
    let pieces = &slices[..count];
    send_pieces(socket, pieces, Some(segment_len), ends, train.class())
}

/// Sends one datagram of a traffic class to an address, or to the one that the socket is connected to; from an address of
/// this host, or from the one that the kernel chooses.
pub(crate) fn send_one(
    socket: BorrowedFd<'_>,
    datagram: &[u8],
    ends: (Option<SocketAddr>, Option<IpAddr>),
    class: u8,
) -> io::Result<usize> {
    send_pieces(socket, &[IoSlice::new(datagram)], None, ends, class)
}

fn send_pieces(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    segment_len: Option<u16>,
    (to, from): (Option<SocketAddr>, Option<IpAddr>),
    class: u8,
) -> io::Result<usize> {
    let (ipv4, ipv6) = (ipv4_info(from), ipv6_info(from));
    let source = match from {
        Some(IpAddr::V4(_)) => Some(ControlMessage::Ipv4PacketInfo(&ipv4)),
        Some(IpAddr::V6(_)) => Some(ControlMessage::Ipv6PacketInfo(&ipv6)),
        None => None,
    };
    let segments = segment_len.as_ref().map(ControlMessage::UdpGsoSegments);
    let wide = i32::from(class);
    let class = match class {
        0 => None,
        _ if is_ipv6(socket, to)? => Some(ControlMessage::Ipv6TClass(&wide)),
        _ => Some(ControlMessage::Ipv4Tos(&class)),
    };
    let mut control = [ControlMessage::Ipv4Tos(&0); 3];
    let mut count = 0;
    for message in [segments, source, class].into_iter().flatten() {
        control[count] = message;
        count += 1;
    }
    let to = to.map(SockaddrStorage::from);
    let sent = sendmsg(
        socket.as_raw_fd(),
        pieces,
        &control[..count],
        MsgFlags::MSG_DONTWAIT,
        to.as_ref(),
    );
    Ok(sent?)
}

/// Returns whether datagrams from a socket, to an address or to the one that it is connected to, are of IPv6.
fn is_ipv6(socket: BorrowedFd<'_>, to: Option<SocketAddr>) -> io::Result<bool> {
    if let Some(to) = to {
        return Ok(to.is_ipv6());
    }
    let own: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    Ok(own.as_sockaddr_in6().is_some())
}

fn ipv4_info(from: Option<IpAddr>) -> libc::in_pktinfo {
    let octets = match from {
        Some(IpAddr::V4(address)) => address.octets(),
        _ => [0; 4],
    };
    libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from_ne_bytes(octets),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    }
}

fn ipv6_info(from: Option<IpAddr>) -> libc::in6_pktinfo {
    let octets = match from {
        Some(IpAddr::V6(address)) => address.octets(),
        _ => [0; 16],
    };
    libc::in6_pktinfo {
        ipi6_addr: libc::in6_addr { s6_addr: octets },
        ipi6_ifindex: 0,
    }
}

/// Returns whether the kernel knows `UDP_SEGMENT`. One before 4.18 would ignore it, and send one long datagram.
fn can_segment(socket: BorrowedFd<'_>) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| getsockopt(&socket, UdpGsoSegment).is_ok())
}
