//! Addresses of links.

use std::{io, net::IpAddr};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};

use crate::Netlink;
use crate::Prefix;

impl Netlink {
    /// The addresses of a link, and whether each has no route to its network; none if it does not exist.
    pub async fn addresses(&self, index: u32) -> io::Result<Vec<(Prefix, bool)>> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        match self.dump(RouteNetlinkMessage::GetAddress(message)).await {
            Ok(found) => Ok(found.iter().filter_map(|m| address_of(m, index)).collect()),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// `is_bare`: without a route to its network.
    pub async fn add_address(&self, index: u32, prefix: Prefix, is_bare: bool) -> io::Result<()> {
        let mut message = message(index, prefix);
        let bare = AddressAttribute::Flags(AddressFlags::Noprefixroute);
        message.attributes.extend(is_bare.then_some(bare));
        self.add(RouteNetlinkMessage::NewAddress(message)).await
    }

    pub async fn remove_address(&self, index: u32, prefix: Prefix) -> io::Result<()> {
        let message = message(index, prefix);
        self.change(RouteNetlinkMessage::DelAddress(message)).await
    }
}

fn message(index: u32, prefix: Prefix) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = prefix.length();
    message.header.family = match prefix.address() {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.attributes = vec![
        AddressAttribute::Local(prefix.address()),
        AddressAttribute::Address(prefix.address()),
    ];
    message
}

fn address_of(message: &RouteNetlinkMessage, index: u32) -> Option<(Prefix, bool)> {
    let RouteNetlinkMessage::NewAddress(message) = message else {
        return None;
    };
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    });
    let is_bare = message.attributes.iter().any(|a| {
        matches!(a, AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Noprefixroute))
    });
    let prefix = Prefix::new(address?, message.header.prefix_len).ok()?;
    (message.header.index == index).then_some((prefix, is_bare))
}
