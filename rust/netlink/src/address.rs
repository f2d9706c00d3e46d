//! Addresses of links.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    route::RouteType,
};

use convoy_types::Prefix;
use tokio::time::{Instant, sleep};

use crate::{Netlink, connection::family, error::NetlinkError, route::PathMtu};

/// Time limit for the kernel to deliver to new addresses, and time between two looks.
const DELIVERY_PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address, with the length of its network's prefix. Of a link with two ends, the other end's is not here.
    pub prefix: Prefix,
    /// The address at which the network's hosts hear broadcasts.
    pub broadcast: Option<Ipv4Addr>,
    /// Without a route to its network.
    pub is_bare: bool,
    /// Used at once: nobody else on the link is asked whether it is theirs.
    pub is_unchecked: bool,
}

impl From<Prefix> for Address {
    fn from(prefix: Prefix) -> Self {
        Self {
            prefix,
            broadcast: None,
            is_bare: false,
            is_unchecked: false,
        }
    }
}

impl Address {
    /// An address at which the link hears the broadcasts of its network, if that has any.
    #[must_use]
    pub fn with_broadcast(prefix: Prefix) -> Self {
        let broadcast = match prefix.address() {
            // A network of two has none (RFC 3021).
            IpAddr::V4(address) if prefix.length() < 31 => {
                Some((u32::from(address) | u32::MAX >> prefix.length()).into())
            }
            _ => None,
        };
        Self {
            broadcast,
            ..Self::from(prefix)
        }
    }
}

impl Netlink {
    /// Lists the addresses of a link, or else of all; none if it does not exist.
    pub async fn addresses(&self, index: Option<u32>) -> Result<Vec<Address>, NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = index.unwrap_or(0);
        match self.dump(RouteNetlinkMessage::GetAddress(message)).await {
            Ok(found) => {
                let addresses = found.iter().filter_map(|message| match message {
                    RouteNetlinkMessage::NewAddress(message) => Some(message),
                    _ => None,
                });
                let is_wanted =
                    |it: &&AddressMessage| index.is_none_or(|index| it.header.index == index);
                let addresses = addresses.filter(is_wanted);
                Ok(addresses.filter_map(Address::parse).collect())
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
            Err(cause) => Err(NetlinkError::on("list", "addresses")(cause)),
        }
    }

    /// Gives an address to the link with an index.
    pub async fn add_address(&self, index: u32, address: Address) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewAddress(address.message(index));
        let added = self.add(message).await;
        added.map_err(NetlinkError::on(
            "add",
            format_args!("address {}", address.prefix),
        ))
    }

    /// Waits until packets to addresses of a link that is up are delivered, a second at most. The kernel arranges it in
    /// the background if an address is of IPv6, and drops them before.
    pub async fn await_delivery_to(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let deadline = Instant::now() + DELIVERY_PATIENCE;
        for address in addresses {
            while Instant::now() < deadline && !self.is_delivered(address).await {
                sleep(BETWEEN_LOOKS).await;
            }
        }
    }

    /// Returns whether packets to an address are delivered here; not if rules keep it from being looked up.
    async fn is_delivered(&self, address: IpAddr) -> bool {
        let route = self.route_to(address, 0, PathMtu::OfRoute).await;
        route.is_ok_and(|it| it.is_some_and(|route| route.kind == RouteType::Local))
    }

    /// Takes an address from the link with an index.
    pub async fn remove_address(&self, index: u32, prefix: Prefix) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelAddress(Address::from(prefix).message(index));
        let removed = self.change(message).await;
        removed.map_err(NetlinkError::on("remove", format_args!("address {prefix}")))
    }
}

impl Address {
    fn message(&self, index: u32) -> AddressMessage {
        let address = self.prefix.address();
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = self.prefix.length();
        message.header.family = family(self.prefix.is_ipv6());
        if self.is_unchecked {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        let broadcast = self.broadcast.map(AddressAttribute::Broadcast);
        let bare = AddressAttribute::Flags(AddressFlags::Noprefixroute);
        let bare = self.is_bare.then_some(bare);
        message.attributes.extend(broadcast.into_iter().chain(bare));
        message
    }

    fn parse(message: &AddressMessage) -> Option<Self> {
        let (mut local, mut address, mut broadcast) = (None::<IpAddr>, None, None);
        let mut flags = AddressFlags::empty();
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(it) => local = Some(*it),
                AddressAttribute::Address(it) => address = Some(*it),
                AddressAttribute::Broadcast(it) => broadcast = Some(*it),
                AddressAttribute::Flags(it) => flags = *it,
                _ => {}
            }
        }
        Some(Self {
            prefix: Prefix::new(local.or(address)?, message.header.prefix_len)?,
            broadcast,
            is_bare: flags.contains(AddressFlags::Noprefixroute),
            is_unchecked: flags.contains(AddressFlags::Nodad),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_message() {
        let prefix: Prefix = "10.0.0.2/24".parse().unwrap();
        let bare = Address {
            is_bare: true,
            ..Address::with_broadcast(prefix)
        };
        assert_eq!(bare.broadcast, Some(Ipv4Addr::new(10, 0, 0, 255)));
        for address in [Address::from(prefix), bare] {
            assert_eq!(Address::parse(&address.message(1)), Some(address));
        }
    }

    #[test]
    fn the_other_end_of_a_link_is_not_its_address() {
        let mut message = AddressMessage::default();
        message.header.prefix_len = 32;
        let (own, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        message.attributes = vec![AddressAttribute::Address(theirs.into())];
        let parsed = |it: &AddressMessage| Address::parse(it).unwrap().prefix.address();
        assert_eq!(parsed(&message), theirs);
        let local = AddressAttribute::Local(own.into());
        message.attributes.push(local);
        assert_eq!(parsed(&message), own);
    }
}
