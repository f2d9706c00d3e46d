//! The hop limit of a socket's packets.

use nix::sys::socket::{
    setsockopt,
    sockopt::{Ipv4Ttl, Ipv6Ttl},
};
use tokio::net::UdpSocket;

/// More hops than these are as good as any number (traceroute(8) sends 30 at most).
const PROBE: u8 = 32;

/// The number of hops that another host means to find something out by, if it is one.
pub fn of_probe(hops: u8) -> Option<u8> {
    (hops < PROBE).then_some(hops)
}

/// Sets the number for what is sent from now on; without one, the kernel's.
pub(super) fn set(socket: &UdpSocket, hops: Option<u8>) {
    let is_ipv6 = socket.local_addr().is_ok_and(|it| it.is_ipv6());
    let value = hops.map_or(-1, i32::from);
    // Without it, a probe arrives.
    let _ = match is_ipv6 {
        false => setsockopt(socket, Ipv4Ttl, &value),
        true => setsockopt(socket, Ipv6Ttl, &value),
    };
}
