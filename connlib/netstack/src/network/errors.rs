//! Errors that a UDP socket has of its own, such as those that ICMP reports about datagrams that were sent.

use std::{io, os::fd::AsFd};

use nix::sys::socket::{
    setsockopt,
    sockopt::{Ipv4RecvErr, Ipv6RecvErr},
};
use rustix::net::{RecvFlags, recv};
use tokio::{io::Interest, net::UdpSocket};

/// Makes the kernel report transient errors, too.
pub(crate) fn ask_for(socket: &UdpSocket) {
    let is_ipv6 = socket.local_addr().is_ok_and(|it| it.is_ipv6());
    // Otherwise it reports fewer.
    let _ = match is_ipv6 {
        false => setsockopt(socket, Ipv4RecvErr, &true),
        true => setsockopt(socket, Ipv6RecvErr, &true),
    };
}

/// Waits until there is a datagram or an error; returns the latter. May be cancelled.
pub(crate) async fn ready(socket: &UdpSocket) -> Option<io::Error> {
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
pub(crate) fn forget_details(socket: &UdpSocket) {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    while recv(socket.as_fd(), &mut [0; 1], flags).is_ok() {}
}
