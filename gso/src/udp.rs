//! The UDP sockets: one for IPv4, one for IPv6, on the same port.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use convoy_types::Destination;
pub use convoy_types::Family;
use quinn_udp::{EcnCodepoint, Transmit};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::{flush::SendDatagrams, receive::ReceiveBuffers};
use narrow::NarrowRoutes;
pub use privileged::{OwnPrivileges, Privileged, grow_buffers, have_mark};
pub use routes::Flow;
use routes::Routes;
use socket::AsyncSocket;

mod narrow;
mod options;
mod privileged;
mod routes;
mod socket;
mod watched;

/// Socket buffer requested in each direction, in bytes; the reference requests the same.
pub const SOCKET_BUFFER_BYTES: usize = 7 * 1024 * 1024;
/// Attempts to find a port that is free for both address families.
const RANDOM_PORT_ATTEMPTS: usize = 16;

/// Options with which the sockets are opened.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// The UDP port; 0 lets the kernel choose.
    pub port: u16,
    /// The firewall mark; 0 for none.
    pub fwmark: u32,
    /// Whether the kernel may coalesce received datagrams (`UDP_GRO`).
    pub receive_offload: bool,
    /// Sets the mark and the buffers.
    pub privileged: Arc<dyn Privileged>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            port: 0,
            fwmark: 0,
            receive_offload: false,
            privileged: Arc::new(OwnPrivileges),
        }
    }
}

/// Sockets that are bound but not yet part of an event loop.
#[derive(Debug)]
pub struct BoundSockets {
    v4: Option<Socket>,
    v6: Option<Socket>,
    port: u16,
    fwmark: u32,
    receive_offload: bool,
    privileged: Arc<dyn Privileged>,
}

impl BoundSockets {
    /// Binds a socket for each address family that the machine has, both on the same port.
    ///
    /// # Errors
    /// As `socket(2)`, `bind(2)`, and [`Privileged::prepare`].
    pub fn open(options: SocketOptions) -> io::Result<Self> {
        let mut attempts = 1..=RANDOM_PORT_ATTEMPTS;
        let bound = loop {
            let result = Self::open_pair(&options);
            let in_use = matches!(&result, Err(e) if e.kind() == io::ErrorKind::AddrInUse);
            if in_use && options.port == 0 && attempts.next().is_some() {
                continue;
            }
            break result?;
        };
        let sockets: Vec<_> = bound.v4.iter().chain(&bound.v6).map(AsFd::as_fd).collect();
        bound.privileged.prepare(&sockets, options.fwmark)?;
        Ok(bound)
    }

    /// The port that both sockets are bound to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn open_pair(options: &SocketOptions) -> io::Result<Self> {
        let v4 = absent_family(bind((Ipv4Addr::UNSPECIFIED, options.port).into()))?;
        let mut port = options.port;
        if let Some(v4) = &v4 {
            port = bound_port(v4)?;
        }
        let v6 = absent_family(bind((Ipv6Addr::UNSPECIFIED, port).into()))?;
        if let Some(v6) = &v6 {
            port = bound_port(v6)?;
        }
        if v4.is_none() && v6.is_none() {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        Ok(Self {
            v4,
            v6,
            port,
            fwmark: options.fwmark,
            receive_offload: options.receive_offload,
            privileged: Arc::clone(&options.privileged),
        })
    }
}

/// The sockets of a running event loop.
#[derive(Debug)]
pub struct UdpSockets {
    v4: Option<AsyncSocket>,
    v6: Option<AsyncSocket>,
    port: u16,
    fwmark: u32,
    routes: Routes,
    narrow: NarrowRoutes,
    privileged: Arc<dyn Privileged>,
}

impl UdpSockets {
    /// Registers the sockets with the current tokio runtime.
    ///
    /// # Errors
    /// As `epoll_ctl(2)` and `setsockopt(2)`.
    pub fn register(bound: BoundSockets) -> io::Result<Self> {
        let register = |socket: Option<Socket>| {
            socket
                .map(|s| AsyncSocket::register(s, bound.receive_offload))
                .transpose()
        };
        Ok(Self {
            v4: register(bound.v4)?,
            v6: register(bound.v6)?,
            port: bound.port,
            fwmark: bound.fwmark,
            routes: Routes::new(),
            narrow: NarrowRoutes::default(),
            privileged: bound.privileged,
        })
    }

    /// Stands in for closed sockets: receives nothing, and every send fails.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            v4: None,
            v6: None,
            port: 0,
            fwmark: 0,
            routes: Routes::default(),
            narrow: NarrowRoutes::default(),
            privileged: Arc::new(OwnPrivileges),
        }
    }

    /// The port that both sockets are bound to; 0 without sockets.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the kernel cuts batches into datagrams (`UDP_SEGMENT`), as probed at registration.
    #[must_use]
    pub fn segmentation(&self) -> bool {
        self.sockets().all(AsyncSocket::segmentation)
    }

    /// Returns whether the kernel coalesces received datagrams (`UDP_GRO`).
    #[must_use]
    pub fn receive_offload(&self) -> bool {
        self.sockets().all(AsyncSocket::receive_offload)
    }

    /// The sockets' descriptors, for [`Privileged::prepare`] on another thread.
    #[must_use]
    pub fn descriptors(&self) -> Vec<Arc<OwnedFd>> {
        self.sockets().map(AsyncSocket::descriptor).collect()
    }

    /// Notes the firewall mark that the sockets have by now.
    pub fn note_fwmark(&mut self, mark: u32) {
        self.fwmark = mark;
        // Routing rules may match the mark.
        self.forget_routes();
    }

    /// Returns whether a datagram from `source` to `to` leaves by `interface`; true if that is unknown.
    pub fn lead_out_by(&mut self, interface: u32, to: SocketAddr, source: IpAddr) -> bool {
        let flow = self.flow(to, Some(source));
        self.routes.lead_out_by(interface, flow)
    }

    /// Allows this many lookups of a route's MTU until the next call; with none left, the last result for a
    /// destination holds.
    pub fn allow_route_questions(&mut self, questions: usize) {
        self.narrow.allow(questions);
    }

    /// Marks the MTUs of routes as outdated, so that each is asked for again. Call when routes have changed.
    pub fn forget_routes(&mut self) {
        self.narrow.routes_changed();
    }

    /// Receives pending datagrams into `buffers` without waiting, in at most one `recvmmsg`.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, else as `recvmmsg(2)`.
    pub fn receive(&mut self, family: Family, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        match self.socket_mut(family) {
            Some(socket) => socket.receive(buffers),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits until the socket is readable; forever if there is no such socket. Cancel-safe.
    pub async fn readable(&self, family: Family) {
        match self.socket(family) {
            Some(socket) => socket.readable().await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether a receive call may succeed. `is_busy`: the event loop has not waited lately, so tokio has
    /// had no chance to see the socket become readable.
    #[must_use]
    pub fn is_worth_receiving(&mut self, family: Family, is_busy: bool, now: Duration) -> bool {
        self.socket_mut(family)
            .is_some_and(|socket| socket.is_worth_receiving(is_busy, now))
    }

    /// Returns whether a full socket may have room: it is writable, or it has been a while since the last try.
    #[must_use]
    pub fn is_worth_sending(&mut self, family: Family, now: Duration) -> bool {
        self.socket_mut(family)
            .is_none_or(|socket| socket.is_worth_sending(now))
    }

    /// Waits until a full socket is writable again; forever if it is not full, or if there is no such
    /// socket. Cancel-safe.
    pub async fn writable(&self, family: Family) {
        match self.socket(family) {
            Some(socket) => socket.writable().await,
            None => std::future::pending().await,
        }
    }

    /// Datagrams that the kernel has dropped on receive: above all because a receive buffer was full, but
    /// also for a wrong checksum. Each socket's count wraps at 2³².
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        self.sockets().map(|s| options::drops(s.as_fd())).sum()
    }

    /// The smaller receive buffer and the smaller send buffer of the two sockets, in bytes, including the
    /// kernel's overhead; `None` without sockets.
    #[must_use]
    pub fn buffer_bytes(&self) -> Option<(usize, usize)> {
        let sizes = |s: &AsyncSocket| options::buffer_bytes(&SockRef::from(s));
        let smaller = |a: (usize, usize), b: (usize, usize)| (a.0.min(b.0), a.1.min(b.1));
        self.sockets().map(sizes).reduce(smaller)
    }

    fn flow(&self, to: SocketAddr, source: Option<IpAddr>) -> Flow {
        Flow {
            to,
            source: (source, self.port),
            mark: self.fwmark,
        }
    }

    fn socket(&self, family: Family) -> Option<&AsyncSocket> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    fn socket_mut(&mut self, family: Family) -> Option<&mut AsyncSocket> {
        match family {
            Family::V4 => self.v4.as_mut(),
            Family::V6 => self.v6.as_mut(),
        }
    }

    fn sockets(&self) -> impl Iterator<Item = &AsyncSocket> {
        self.v4.iter().chain(&self.v6)
    }
}

impl SendDatagrams for UdpSockets {
    fn send(
        &mut self,
        destination: &Destination,
        contents: &[u8],
        segment_len: Option<usize>,
    ) -> io::Result<()> {
        let flow = self.flow(destination.to, destination.source);
        let len = segment_len.unwrap_or(contents.len());
        let Self { routes, narrow, .. } = self;
        let is_narrow = narrow.is_too_narrow(destination, len, || routes.own_mtu(flow));
        if is_narrow && segment_len.is_some() {
            // A batch cannot be fragmented. The kernel says the same where it heeds the route's MTU.
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let socket = self.socket_mut(Family::of(destination.to.ip()));
        let socket = socket.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        socket.heed_route_mtu(is_narrow)?;
        socket.send(&Transmit {
            destination: destination.to,
            ecn: EcnCodepoint::from_bits(destination.ecn),
            contents,
            segment_size: segment_len,
            src_ip: destination.source,
        })
    }

    fn forget_learnt_mtu(&mut self, to: SocketAddr) {
        if to.is_ipv6() {
            let flow = self.flow(to, None);
            self.privileged.forget_learnt_mtu(&flow);
        }
    }

    fn recover(&mut self) {
        for socket in self.v4.iter_mut().chain(&mut self.v6) {
            socket.recreate_state();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn bound_port(socket: &Socket) -> io::Result<u16> {
    let address = socket.local_addr()?.as_socket();
    address
        .map(|a| a.port())
        .ok_or_else(|| io::Error::other("the UDP socket has no IP address"))
}

/// Turns the error of an address family that the machine lacks into `None`: it may have the other.
fn absent_family(result: io::Result<Socket>) -> io::Result<Option<Socket>> {
    match result {
        Ok(socket) => Ok(Some(socket)),
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests;
