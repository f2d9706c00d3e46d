//! Sockets outside of the tunnel.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd,
};
use nix::{
    net::if_::if_indextoname,
    sys::socket::{setsockopt, sockopt},
};
use rustix::net::{RecvFlags, recv};
use tokio::{
    io::{AsyncReadExt as _, Interest, Join, ReadBuf, Take, join},
    net::{
        TcpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Bytes of a connection's answers: hundreds of addresses. Of a longer answer that names servers and their addresses,
/// the resolver would make up to a gigabyte, as it copies all addresses for each of the servers.
const MOST_BYTES: u64 = 8 << 10;

/// Makes the sockets for queries to one name server.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) handle: TokioHandle,
    pub(super) mark: Option<u32>,
    /// The interface that they are bound to: that of a link-local server.
    pub(super) interface: Option<String>,
}

impl RuntimeProvider for Sockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = Connected;
    type Tcp = AsyncIoTokioAsStd<Join<Take<OwnedReadHalf>, OwnedWriteHalf>>;

    fn create_handle(&self) -> Self::Handle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let Self {
            mark, interface, ..
        } = self.clone();
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            keep_out_of_the_tunnel(&socket, mark)?;
            if let Some(interface) = interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            if let Some(local) = local {
                socket.bind(local)?;
            }
            let connected = socket.connect(server);
            let stream = match patience {
                Some(patience) => tokio::time::timeout(patience, connected).await??,
                None => connected.await?,
            };
            let (answers, queries) = stream.into_split();
            Ok(AsyncIoTokioAsStd(join(answers.take(MOST_BYTES), queries)))
        })
    }

    /// Connects the socket, although the trait advises against it: see [`Connected`].
    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        let Self {
            mark, interface, ..
        } = self.clone();
        Box::pin(async move {
            let socket = tokio::net::UdpSocket::bind(local).await?;
            keep_out_of_the_tunnel(&socket, mark)?;
            if let Some(interface) = interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            socket.connect(server).await?;
            Ok(Connected { socket, server })
        })
    }
}

/// A UDP socket for one name server. The kernel keeps datagrams from elsewhere away, and reports a server that
/// refuses its port.
pub(super) struct Connected {
    socket: tokio::net::UdpSocket,
    server: SocketAddr,
}

impl DnsUdpSocket for Connected {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let from = ready!(self.socket.poll_recv_from(cx, &mut buffer))?;
        Poll::Ready(Ok((buffer.filled().len(), from)))
    }

    /// As [`Self::poll_recv_from`], which is not woken by an error.
    fn recv_from<'a, 'b, 'c>(
        &'a self,
        buffer: &'b mut [u8],
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<(usize, SocketAddr)>> + 'c>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(async move {
            let wakes = Interest::READABLE | Interest::ERROR;
            let receive = || Ok(recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?.0);
            let length = self.socket.async_io(wakes, receive).await?;
            Ok((length, self.server))
        })
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        datagram: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send_to(cx, datagram, to)
    }
}

/// The name of the interface that a zone names or numbers.
pub(super) fn interface_name(zone: &str) -> String {
    let numbered = zone
        .parse()
        .ok()
        .and_then(|index| if_indextoname(index).ok());
    let name = numbered.and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| zone.to_owned())
}

/// Returns whether a route outside of the tunnel leads to the address, from an address that can get answers from there.
/// Sends nothing.
pub(super) fn has_route(address: IpAddr, mark: Option<u32>) -> bool {
    source_of(address, mark).is_ok_and(|source| suits(source, address))
}

/// The address from which datagrams outside of the tunnel would go to `address`. Sends nothing.
pub(super) fn source_of(address: IpAddr, mark: Option<u32>) -> io::Result<IpAddr> {
    const ANY_PORT: u16 = 9;
    let local: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0))?;
    keep_out_of_the_tunnel(&socket, mark)?;
    socket.connect((address, ANY_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// A unique local IPv6 address gets no answers from the internet (RFC 4193 §4.3).
fn suits(source: IpAddr, destination: IpAddr) -> bool {
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            !source.is_unique_local() || destination.is_unique_local()
        }
        _ => true,
    }
}

fn keep_out_of_the_tunnel(socket: &impl AsFd, mark: Option<u32>) -> io::Result<()> {
    match mark {
        Some(mark) => Ok(setsockopt(socket, sockopt::Mark, &mark)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn a_route_is_found_without_sending_and_a_zone_by_name_or_number() {
        assert!(has_route([127, 0, 0, 1].into(), None));
        assert_eq!(
            ["lo", "1", "gone"].map(interface_name),
            ["lo", "lo", "gone"]
        );
    }

    #[test]
    fn a_unique_local_source_suits_only_its_like() {
        let [local, global] = ["fd00::1", "2001:db8::1"].map(|it| it.parse().unwrap());
        assert!(suits(local, local) && suits(global, global) && suits(global, local));
        assert!(!suits(local, global));
    }

    /// Setting a mark needs a privilege.
    #[test]
    fn udp_sockets_have_the_mark_or_are_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let outcome = runtime.unwrap().block_on(async {
            let sockets = Sockets {
                handle: TokioHandle::default(),
                mark: Some(51_820),
                interface: None,
            };
            let [local, server] = [0, 9].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
            let socket = sockets.bind_udp(local, server).await?;
            io::Result::Ok(getsockopt(&socket.socket, sockopt::Mark)?)
        });
        match outcome {
            Ok(mark) => assert_eq!(mark, 51_820),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
