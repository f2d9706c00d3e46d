//! Sockets that have addresses of other hosts (`IP_TRANSPARENT`, ip(7)).

use std::{io, os::fd::AsFd};

use nix::sys::socket::{
    setsockopt,
    sockopt::{IpTransparent, SetBool},
};

/// As `IP_TRANSPARENT`.
#[derive(Clone, Copy)]
struct Ipv6Transparent;

nix::setsockopt_impl!(
    Ipv6Transparent,
    libc::IPPROTO_IPV6,
    libc::IPV6_TRANSPARENT,
    bool,
    SetBool
);

/// Lets a socket be bound to any address, and send from it.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in the socket's namespace, which the owner of that has from outside.
pub fn permit(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    match is_ipv6 {
        false => setsockopt(&fd, IpTransparent, &true)?,
        true => setsockopt(&fd, Ipv6Transparent, &true)?,
    }
    Ok(())
}
