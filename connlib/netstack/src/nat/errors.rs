//! ICMP errors that the network outside sends about a flow's datagrams.

use std::{io, os::fd::AsFd};

use nix::sys::socket::{
    setsockopt,
    sockopt::{Ipv4RecvErr, Ipv6RecvErr},
};
use rustix::net::{RecvFlags, recv};
use tokio::{io::Interest, net::UdpSocket};

use crate::{counters::Refusal, stack::icmp::Unreachable};

/// Has the kernel report errors that are not for good, too.
pub(super) fn ask_for(socket: UdpSocket) -> UdpSocket {
    let is_ipv6 = socket.local_addr().is_ok_and(|it| it.is_ipv6());
    // Otherwise it reports fewer.
    let _ = match is_ipv6 {
        false => setsockopt(&socket, Ipv4RecvErr, &true),
        true => setsockopt(&socket, Ipv6RecvErr, &true),
    };
    socket
}

/// Waits until there is a datagram or an error; returns the latter. May be cancelled.
pub(super) async fn ready(socket: &UdpSocket) -> Option<io::Error> {
    let ready = socket.ready(Interest::READABLE | Interest::ERROR).await;
    if !ready.is_ok_and(|it| it.is_error()) {
        return None;
    }
    let mut error = None;
    // tokio sees the next error once it believes that there is none now.
    let _: io::Result<()> = socket.try_io(Interest::ERROR, || {
        error = socket.take_error().ok().flatten();
        Err(io::ErrorKind::WouldBlock.into())
    });
    forget_details(socket);
    error
}

/// Discards what the kernel keeps of errors beyond their numbers, as it takes room for datagrams.
pub(super) fn forget_details(socket: &UdpSocket) {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    while recv(socket.as_fd(), &mut [0; 1], flags).is_ok() {}
}

/// What a router would say in place of this refusal.
pub(super) fn unreachable(refusal: Refusal) -> Option<Unreachable> {
    match refusal {
        Refusal::TargetRefused => Some(Unreachable::Port),
        Refusal::Unreachable | Refusal::TimedOut => Some(Unreachable::Host),
        _ => None,
    }
}
