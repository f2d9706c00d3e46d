//! The networks that get routes into the tunnel.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{
    config::{Config, Interface, Peer, Table},
    located::Place,
};

/// The networks that get routes into the tunnel by `Table = auto`, apart from 0.0.0.0/0 and ::/0.
pub struct Routed {
    networks: HashMap<(IpAddr, u8), Place>,
    excluded: HashMap<(IpAddr, u8), Place>,
}

impl Routed {
    /// The networks of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::of(&config.interface, &config.peers)
    }

    pub(crate) fn of(interface: &Interface, peers: &[Peer]) -> Self {
        let table = interface.table.as_ref().map(|table| table.value);
        if table.is_some_and(|table| table != Table::Auto) {
            return Self {
                networks: HashMap::new(),
                excluded: HashMap::new(),
            };
        }
        let own = interface.addresses.iter();
        let own = own.filter(|own| own.prefix < longest(own.address));
        let own = own.map(|own| ((masked(own.address, own.prefix), own.prefix), own.at));
        let allowed = peers.iter().flat_map(|peer| &peer.allowed_ips);
        let allowed = allowed.filter(|it| it.prefix > 0);
        let allowed = allowed.map(|it| ((it.address, it.prefix), it.at));
        let excluded = interface.excluded_ips.iter();
        let excluded = excluded.map(|it| ((it.address, it.prefix), it.at));
        Self {
            networks: own.chain(allowed).collect(),
            excluded: excluded.collect(),
        }
    }

    /// The place of the longest network that holds an address, unless an excluded network does.
    #[must_use]
    pub fn place_of(&self, address: IpAddr) -> Option<Place> {
        let of = |networks: &HashMap<(IpAddr, u8), Place>| {
            let mut lengths = (0..=longest(address)).rev();
            lengths.find_map(|length| networks.get(&(masked(address, length), length)).copied())
        };
        of(&self.networks).filter(|_| of(&self.excluded).is_none())
    }
}

fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address without host bits.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}
