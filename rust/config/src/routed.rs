//! The networks that get routes into the tunnel.

use std::{collections::HashMap, net::IpAddr};

use convoy_types::Prefix;

use crate::{
    config::{Config, Interface, Peer, Table},
    located::Place,
};

/// The networks that get routes into the tunnel by `Table = auto`, apart from 0.0.0.0/0 and ::/0.
pub struct Routed {
    networks: HashMap<Prefix, Place>,
    excluded: HashMap<Prefix, Place>,
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
        let own = own.filter(|own| !own.is_host());
        let own = own.map(|own| (own.network(), own.at));
        let allowed = peers.iter().flat_map(|peer| &peer.allowed_ips);
        let allowed = allowed.filter(|it| !it.is_default());
        let allowed = allowed.map(|it| (it.value, it.at));
        let excluded = interface.excluded_ips.iter();
        let excluded = excluded.map(|it| (it.value, it.at));
        Self {
            networks: own.chain(allowed).collect(),
            excluded: excluded.collect(),
        }
    }

    /// The place of the longest network that holds an address, unless an excluded network does.
    #[must_use]
    pub fn place_of(&self, address: IpAddr) -> Option<Place> {
        let of = |networks: &HashMap<Prefix, Place>| {
            let lengths = (0..=Prefix::host(address).length()).rev();
            let mut holding = lengths.filter_map(|length| Prefix::network_of(address, length));
            holding.find_map(|network| networks.get(&network).copied())
        };
        of(&self.networks).filter(|_| of(&self.excluded).is_none())
    }
}
