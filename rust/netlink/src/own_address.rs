//! Addresses at which this machine can be reached.

use std::net::IpAddr;

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
};

use crate::{Netlink, error::NetlinkError};

/// An address of this machine that other machines may send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address.
    pub address: IpAddr,
    /// The index of its link.
    pub link: u32,
}

/// Flags of addresses that are not theirs yet, or not for new connections any more.
const UNUSABLE: AddressFlags = AddressFlags::Tentative
    .union(AddressFlags::Dadfailed)
    .union(AddressFlags::Deprecated);

impl Netlink {
    /// Lists the addresses of global scope on all links, without those that are tentative, deprecated or taken.
    pub async fn own_addresses(&self) -> Result<Vec<OwnAddress>, NetlinkError> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let found = self.dump(request).await;
        let found = found.map_err(NetlinkError::on("list", "addresses"))?;
        let found = found.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) => OwnAddress::parse(message),
            _ => None,
        });
        Ok(found.collect())
    }
}

impl OwnAddress {
    /// Returns `None` for an address that others cannot send to now.
    fn parse(message: &AddressMessage) -> Option<Self> {
        let is_global = message.header.scope == AddressScope::Universe;
        let flags = message.attributes.iter().find_map(|it| match it {
            AddressAttribute::Flags(flags) => Some(*flags),
            _ => None,
        });
        let is_usable = flags.is_none_or(|flags| !flags.intersects(UNUSABLE));
        let of =
            |is: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(is);
        let local = of(|it| match it {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let address = local.or_else(|| {
            of(|it| match it {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
        })?;
        (is_global && is_usable).then_some(Self {
            address,
            link: message.header.index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_listed_only_while_others_can_send_to_it() {
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let with = |scope, flags| {
            let mut message = AddressMessage::default();
            message.header.index = 7;
            message.header.scope = scope;
            message.attributes = vec![
                AddressAttribute::Address(address),
                AddressAttribute::Flags(flags),
            ];
            OwnAddress::parse(&message)
        };
        let listed = Some(OwnAddress { address, link: 7 });
        let none = AddressFlags::empty();
        assert_eq!(with(AddressScope::Universe, none), listed);
        let temporary = AddressFlags::Secondary;
        assert_eq!(with(AddressScope::Universe, temporary), listed);
        assert_eq!(with(AddressScope::Link, none), None);
        assert_eq!(with(AddressScope::Host, none), None);
        for flag in [
            AddressFlags::Tentative,
            AddressFlags::Deprecated,
            AddressFlags::Dadfailed,
        ] {
            assert_eq!(with(AddressScope::Universe, flag), None, "{flag:?}");
        }
    }

    #[test]
    fn the_other_end_of_a_link_is_no_own_address() {
        let [own, theirs]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let mut message = AddressMessage::default();
        message.attributes = vec![
            AddressAttribute::Address(theirs),
            AddressAttribute::Local(own),
        ];
        assert_eq!(OwnAddress::parse(&message).unwrap().address, own);
    }
}
