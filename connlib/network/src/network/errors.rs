//! Errors that a UDP socket has of its own, such as those that ICMP reports about datagrams that were sent.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
};

use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
        sockopt::{Ipv4RecvErr, Ipv6RecvErr},
    },
};
use tokio::{io::Interest, net::UdpSocket};

/// Reports that are kept of those that wait together.
const MOST: usize = 16;
/// Bytes of a datagram's payload that are kept.
pub const QUOTED: usize = 8;

/// An error about a datagram that was sent.
#[derive(Debug)]
pub struct Report {
    /// The error of the socket.
    pub error: io::Error,
    /// An ICMP message that says so, if any.
    pub icmp: Option<Icmp>,
    /// The MTU of the path, if that is what the error is about.
    pub mtu: Option<u32>,
    /// The beginning of the datagram's payload; of an echo request, its header.
    pub quoted: Option<[u8; QUOTED]>,
}

/// An ICMP message's meaning and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The host that has sent it, if that is known.
    pub from: Option<IpAddr>,
}

impl From<io::Error> for Report {
    fn from(error: io::Error) -> Self {
        Self {
            error,
            icmp: None,
            mtu: None,
            quoted: None,
        }
    }
}

/// Makes the kernel report transient errors, too, and keep their details.
pub(super) fn ask_for(socket: &UdpSocket) {
    let is_ipv6 = socket.local_addr().is_ok_and(|it| it.is_ipv6());
    // Otherwise it reports fewer.
    let _ = match is_ipv6 {
        false => setsockopt(socket, Ipv4RecvErr, &true),
        true => setsockopt(socket, Ipv6RecvErr, &true),
    };
}

/// Waits until there is a datagram or an error; returns the latter. May be cancelled.
pub(super) async fn ready(socket: &UdpSocket) -> Vec<Report> {
    let ready = socket.ready(Interest::READABLE | Interest::ERROR).await;
    if !ready.is_ok_and(|it| it.is_error()) {
        return Vec::new();
    }
    let mut reports = Vec::new();
    // tokio sees the next error once it believes that there is none now.
    let _: io::Result<()> = socket.try_io(Interest::ERROR, || {
        reports = take(socket);
        let other = socket.take_error().ok().flatten();
        reports.extend(other.map(Report::from));
        Err(io::ErrorKind::WouldBlock.into())
    });
    reports
}

/// Takes what the kernel keeps of errors, all of which takes room from datagrams.
pub(super) fn take(socket: &UdpSocket) -> Vec<Report> {
    let mut reports = Vec::new();
    while let Some(report) = next(socket) {
        if reports.len() < MOST {
            reports.push(report);
        }
    }
    reports
}

fn next(socket: &UdpSocket) -> Option<Report> {
    let mut quoted = [0; QUOTED];
    let mut room = [IoSliceMut::new(&mut quoted)];
    // What else the socket was asked to tell comes first: what does not fit is lost.
    let mut control = cmsg_space!(
        libc::sock_extended_err,
        libc::sockaddr_in6,
        libc::c_int,
        libc::in6_pktinfo
    );
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let fd = socket.as_raw_fd();
    let received = recvmsg::<SockaddrStorage>(fd, &mut room, Some(&mut control), flags).ok()?;
    let (length, found) = (
        received.bytes,
        received
            .cmsgs()
            .ok()
            .and_then(|mut all| all.find_map(details)),
    );
    let (details, from) = found?;
    let error = io::Error::from_raw_os_error(details.ee_errno as i32);
    let is_about_length = error.raw_os_error() == Some(libc::EMSGSIZE);
    let is_icmp = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&details.ee_origin);
    Some(Report {
        error,
        icmp: is_icmp.then_some(Icmp {
            kind: details.ee_type,
            code: details.ee_code,
            from,
        }),
        mtu: is_about_length.then_some(details.ee_info),
        quoted: (length == QUOTED).then_some(quoted),
    })
}

fn details(message: ControlMessageOwned) -> Option<(libc::sock_extended_err, Option<IpAddr>)> {
    match message {
        ControlMessageOwned::Ipv4RecvErr(details, from) => {
            let from = from.map(|it| Ipv4Addr::from(it.sin_addr.s_addr.to_ne_bytes()));
            Some((details, from.map(IpAddr::from)))
        }
        ControlMessageOwned::Ipv6RecvErr(details, from) => {
            let from = from.map(|it| Ipv6Addr::from(it.sin6_addr.s6_addr));
            Some((details, from.map(IpAddr::from)))
        }
        _ => None,
    }
}
