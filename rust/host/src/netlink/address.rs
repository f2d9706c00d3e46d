//! Addresses of links.

use std::{io, net::IpAddr};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};

use super::Netlink;
use crate::prefix::Prefix;

impl Netlink {
    /// The addresses of a link; none if it does not exist.
    pub(crate) async fn addresses(&self, index: u32) -> io::Result<Vec<Prefix>> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        match self.dump(RouteNetlinkMessage::GetAddress(message)).await {
            Ok(found) => Ok(found.iter().filter_map(|m| address_of(m, index)).collect()),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn add_address(&self, index: u32, prefix: Prefix) -> io::Result<()> {
        let message = message(index, prefix);
        self.add(RouteNetlinkMessage::NewAddress(message)).await
    }

    pub(crate) async fn remove_address(&self, index: u32, prefix: Prefix) -> io::Result<()> {
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

fn address_of(message: &RouteNetlinkMessage, index: u32) -> Option<Prefix> {
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
    let prefix = Prefix::new(address?, message.header.prefix_len).ok();
    prefix.filter(|_| message.header.index == index)
}
