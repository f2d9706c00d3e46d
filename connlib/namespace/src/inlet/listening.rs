use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt::Ipv6V6Only,
};

use convoy_network::transparent;

/// Connections that the kernel accepts before the owner does.
const BACKLOG: i32 = 4_096;

/// A transparent listener on any address of one family, and a port of its own.
pub(super) struct Listening {
    pub(super) socket: OwnedFd,
    pub(super) is_ipv6: bool,
    pub(super) port: u16,
}

impl Listening {
    pub(super) fn new(is_ipv6: bool) -> io::Result<Self> {
        let (family, any): (_, SocketAddr) = match is_ipv6 {
            false => (AddressFamily::Inet, (Ipv4Addr::UNSPECIFIED, 0).into()),
            true => (AddressFamily::Inet6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Stream, flags, None)?;
        if is_ipv6 {
            setsockopt(&socket, Ipv6V6Only, &true)?;
        }
        transparent::permit(&socket, is_ipv6)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(any))?;
        listen(&socket, Backlog::new(BACKLOG)?)?;
        let listener = TcpListener::from(socket);
        Ok(Self {
            port: listener.local_addr()?.port(),
            socket: listener.into(),
            is_ipv6,
        })
    }
}
