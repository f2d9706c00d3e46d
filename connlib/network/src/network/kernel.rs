//! Networks whose sockets are the kernel's: the host's, and those of network namespaces.

pub(super) mod messages;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use hickory_resolver::{Hosts, proto::rr::Name};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket,
    sockopt::{
        Ipv6V6Only, KeepAlive, OobInline, ReusePort, TcpKeepCount, TcpKeepIdle, TcpKeepInterval,
        TcpNoDelay,
    },
};
use tokio::net::{TcpSocket, UdpSocket, lookup_host};

use super::{
    Answer, Datagrams, Family, Listener, Network, OpenSockets, SocketKind, Stream, names::special,
};

/// Connections that the kernel accepts before the listener does.
const BACKLOG: u32 = 1024;
/// A silent end is probed this often, so that translators on the way keep the connection.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// It may be asleep: it is given up after this many probes without an answer, which take more than 2 h 4 min (RFC 5382,
/// REQ-5).
const KEEPALIVES: u32 = 24;

/// A network of sockets that something else opens.
#[derive(Clone, Debug)]
pub struct Kernel<S>(pub S);

/// Opens sockets in the namespace of this process; names are the system's.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl OpenSockets for Host {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        let kind = match kind {
            SocketKind::Tcp => SockType::Stream,
            SocketKind::Udp => SockType::Datagram,
        };
        let family = match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let opened = socket(family, kind, flags, None).map_err(io::Error::from);
        Box::pin(async { opened })
    }

    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            let whole = Name::from_utf8(name).unwrap_or_default();
            let [is_own, is_nobodys] = [special::is_own(&whole), special::is_nobodys(&whole)];
            if !is_own && !is_nobodys {
                return Ok(lookup_host((name, port)).await?.collect());
            }
            // The system's resolver may ask a name server for it.
            let hosts = Hosts::from_system().unwrap_or_default();
            let found = special::of_hosts(&whole, &hosts);
            if found.is_empty() && is_own {
                return Ok(lookup_host(("localhost", port)).await?.collect());
            }
            let found = found.into_iter();
            Ok(found.map(|address| (address, port).into()).collect())
        })
    }

    fn takes_threads(&self) -> bool {
        true
    }
}

impl<S: OpenSockets> Network for Kernel<S> {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        self.0.resolve(name, port)
    }

    fn takes_threads(&self) -> bool {
        self.0.takes_threads()
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async move {
            let opened = self.0.open(SocketKind::Tcp, Family::of(to.ip())).await?;
            Ok(Stream::Kernel(tcp(opened)?.connect(to).await?))
        })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async move {
            let opened = self.0.open(SocketKind::Tcp, Family::of(at.ip())).await?;
            if at.is_ipv6() {
                setsockopt(&opened, Ipv6V6Only, &true)?;
            }
            let socket = tcp(opened)?;
            socket.set_reuseaddr(true)?;
            socket.bind(at)?;
            Ok(Listener::Kernel(socket.listen(BACKLOG)?))
        })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move {
            let opened = self.0.open(SocketKind::Udp, Family::of(at.ip())).await?;
            bound(opened, at)
        })
    }

    fn listening_datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move {
            let opened = self.0.open(SocketKind::Udp, Family::of(at.ip())).await?;
            if at.ip().is_unspecified() {
                // Before it has an address: the kernel notes of a datagram only what is asked when it arrives.
                // Without it, the kernel chooses where answers come from.
                let _ = messages::ask_for_destinations(&opened, at.is_ipv6());
            }
            bound(opened, at)
        })
    }

    fn datagrams_beside(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move {
            let opened = self.0.open(SocketKind::Udp, Family::of(at.ip())).await?;
            setsockopt(&opened, ReusePort, &true)?;
            bound(opened, at)
        })
    }
}

fn bound(opened: OwnedFd, at: SocketAddr) -> io::Result<Datagrams> {
    if at.is_ipv6() {
        setsockopt(&opened, Ipv6V6Only, &true)?;
    }
    bind(opened.as_raw_fd(), &SockaddrStorage::from(at))?;
    Ok(Datagrams::Kernel(UdpSocket::from_std(opened.into())?))
}

fn tcp(opened: OwnedFd) -> io::Result<TcpSocket> {
    set_options(&opened)?;
    Ok(TcpSocket::from_std_stream(opened.into()))
}

/// Sets the options of all connections, which the sockets that a listener accepts inherit.
pub fn set_options(socket: &OwnedFd) -> io::Result<()> {
    // The sender has decided already what waits for more: a relay adds no delay of its own.
    setsockopt(socket, TcpNoDelay, &true)?;
    // Of two urgent bytes that come before the relay begins, the first would be lost.
    setsockopt(socket, OobInline, &true)?;
    // A peer that vanished would otherwise keep its connection for ever.
    setsockopt(socket, KeepAlive, &true)?;
    let seconds = KEEPALIVE.as_secs() as u32;
    setsockopt(socket, TcpKeepIdle, &seconds)?;
    setsockopt(socket, TcpKeepInterval, &seconds)?;
    setsockopt(socket, TcpKeepCount, &KEEPALIVES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    #[tokio::test]
    async fn an_end_may_be_silent_for_two_hours_and_four_minutes_but_not_for_ever() {
        let opened = Host.open(SocketKind::Tcp, Family::V4).await.unwrap();
        let socket = tcp(opened).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let idle = sockopt::tcp_keepidle(&socket).unwrap();
        let pause = sockopt::tcp_keepintvl(&socket).unwrap();
        let silence = idle + pause * sockopt::tcp_keepcnt(&socket).unwrap();
        let hours = |count: u64| Duration::from_secs(count * 60 * 60);
        assert!(silence >= hours(2) + Duration::from_secs(4 * 60));
        assert!(silence < hours(3));
    }
}
