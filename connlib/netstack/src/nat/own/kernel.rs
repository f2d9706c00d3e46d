//! Local addresses by rtnetlink.

use std::{
    future::ready,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures_util::TryStreamExt;
use rtnetlink::{
    Error, Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressMessage},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
    },
    sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE},
};
use tokio::task::JoinSet;

use super::Known;
use crate::access::Prefix;

/// Notifications: of addresses, and routes, as some of these make addresses local.
const GROUPS: [MulticastGroup; 4] = [
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];
/// `RT_TABLE_LOCAL`: the kernel's own routes to the addresses of this host.
const LOCAL_TABLE: u32 = 255;

/// A socket that is notified of changes. The kernel's buffer bounds its queue.
pub(super) struct Changes(TokioSocket);

/// A connection to rtnetlink.
pub(super) struct Tables {
    handle: Handle,
    _connection: JoinSet<()>,
}

impl Changes {
    pub(super) fn listen() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        let groups = GROUPS.map(|group| 1 << (group as u32 - 1));
        let groups = groups.into_iter().sum();
        socket.socket_mut().bind(&SocketAddr::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Waits until local addresses may have changed; takes all notices that have come until then.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        while !self.concerns_addresses().await? {}
        loop {
            tokio::select! {
                biased;
                another = self.concerns_addresses() => drop(another?),
                () = ready(()) => return Ok(()),
            }
        }
    }

    /// Waits for a notice; whether it is about a local address.
    async fn concerns_addresses(&mut self) -> io::Result<bool> {
        match self.0.recv_from_full().await {
            Ok((notice, _)) => Ok(concerns_addresses(&notice)),
            // Notices were lost.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether a notice, which is a single message, is about a local address. One that cannot be parsed may be.
fn concerns_addresses(notice: &[u8]) -> bool {
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(notice) else {
        return true;
    };
    match message.payload {
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route),
        ) => table_of(&route) == LOCAL_TABLE,
        _ => true,
    }
}

impl Tables {
    pub(super) fn open() -> io::Result<Self> {
        // Strict checks make the kernel filter routes by table.
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        Ok(Self {
            handle,
            _connection: task,
        })
    }

    pub(super) async fn read(&self) -> io::Result<Known> {
        let mut known = Known::default();
        let mut addresses = self.handle.address().get().execute();
        while let Some(message) = addresses.try_next().await.map_err(failure)? {
            known.addresses.extend(addresses_of(&message));
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut filter = RouteMessage::default();
            filter.header.address_family = family;
            filter.attributes = vec![RouteAttribute::Table(LOCAL_TABLE)];
            let mut routes = self.handle.route().get(filter).execute();
            loop {
                match routes.try_next().await {
                    Ok(Some(route)) => known.networks.extend(local_network(&route)),
                    Ok(None) => break,
                    Err(Error::NetlinkError(error)) if is_absent(error.raw_code()) => break,
                    Err(error) => return Err(failure(error)),
                }
            }
        }
        known.settle();
        Ok(known)
    }
}

impl Known {
    /// Moves networks of a single address to where they are found fast.
    fn settle(&mut self) {
        let addresses = &mut self.addresses;
        self.networks
            .retain(|network| match network.only_address() {
                Some(address) => {
                    addresses.insert(address);
                    false
                }
                None => true,
            });
    }
}

/// The addresses that a message gives to an interface. Of a tunnel, the other end's is not among them.
fn addresses_of(message: &AddressMessage) -> impl Iterator<Item = IpAddr> {
    let attributes = || message.attributes.iter();
    let local = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let broadcast = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Broadcast(address) => Some(IpAddr::from(*address)),
        _ => None,
    });
    local.or(address).into_iter().chain(broadcast)
}

/// Returns the network that a route makes local, or broadcast.
fn local_network(route: &RouteMessage) -> Option<Prefix> {
    let is_local = matches!(
        route.header.kind,
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast
    );
    let destination = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                Some(IpAddr::from(*address))
            }
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                Some(IpAddr::from(*address))
            }
            _ => None,
        });
    let any: IpAddr = match route.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let bits = route.header.destination_prefix_length;
    let network = Prefix::new(destination.unwrap_or(any), bits);
    network.filter(|_| is_local && table_of(route) == LOCAL_TABLE)
}

fn table_of(route: &RouteMessage) -> u32 {
    let table = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    table.unwrap_or(route.header.table.into())
}

/// Whether the kernel lacks the family, or the table is empty.
fn is_absent(code: i32) -> bool {
    [-libc::ENOENT, -libc::EOPNOTSUPP, -libc::EAFNOSUPPORT].contains(&code)
}

fn failure(error: Error) -> io::Error {
    match error {
        Error::NetlinkError(error) => error.to_io(),
        other => io::Error::other(other),
    }
}
