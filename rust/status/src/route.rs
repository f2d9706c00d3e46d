//! Whether this host has a route to an endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};

/// Returns why the kernel refuses datagrams to `endpoint` with this mark; `None` if it takes them, or does not say.
/// Sends nothing.
pub(super) fn refusal(endpoint: SocketAddr, fwmark: u32) -> Option<&'static str> {
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Another mark would ask for another route.
    setsockopt(&socket, sockopt::Mark, &fwmark).ok()?;
    let error = socket.connect(endpoint).err()?;
    error
        .raw_os_error()
        .map(|code| Errno::from_raw(code).desc())
}
