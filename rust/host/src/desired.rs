//! The desired state of the host.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use convoy_types::{InterfaceName, Prefix, has_internet, holes_in_internet};

use crate::error::HostError;

/// The state of the host that the configuration of one interface wants.
///
/// The interface itself must exist; this crate neither creates nor removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of the interface.
    pub addresses: Vec<Prefix>,
    /// The interface's MTU in bytes; computed from the routes to `endpoints` if absent.
    pub mtu: Option<u32>,
    /// Bytes for the headers of the outer tunnel, if there is one: a computed MTU is lower by that number.
    pub outer_headers: u32,
    /// The largest MTU in bytes that was found to work: neither `mtu` nor the routes lead to a larger one. Ignored
    /// below [`smallest_mtu`].
    pub mtu_at_most: Option<u32>,
    /// The peers' endpoints, as far as known.
    pub endpoints: Vec<IpAddr>,
    /// Servers outside the tunnel that it uses: name servers for the endpoints' names, and STUN servers.
    pub servers: Vec<IpAddr>,
    /// TURN servers by TCP or TLS: a kill switch lets sockets with the mark connect to these, at these ports.
    pub streams: Vec<SocketAddr>,
    /// The peers' allowed IPs, which become routes.
    pub allowed: Vec<Prefix>,
    /// Table for the routes.
    pub table: Table,
    /// The mark of the tunnel's own datagrams. Needed for a default route in [`Table::Auto`] and for a kill
    /// switch: see [`Host::pick_mark`](crate::Host::pick_mark).
    pub fwmark: Option<u32>,
    /// Networks that stay outside the tunnel although `allowed` holds them.
    pub excluded: Vec<Prefix>,
    /// Whether directly connected networks stay outside the tunnel too; followed as they change.
    pub exclude_local: bool,
    /// The kill switch, which drops everything outside the tunnel.
    pub kill_switch: Option<KillSwitch>,
    /// Whether the kill switch lets marked TCP out to the default gateway of IPv4, which is asked to forward a port.
    pub asks_router: bool,
    /// Whether the tunnel also sends to addresses that are not known yet, as peers may be met anywhere.
    pub meets_peers: bool,
    /// Name servers and search domains.
    pub dns: Dns,
}

/// Table for the routes, as `Table` of wg-quick(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Default routes into a table of their own, selected by the mark; others into the main table.
    #[default]
    Auto,
    /// No routes.
    Off,
    /// All routes into this table.
    Number(u32),
}

/// A kill switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillSwitch {
    /// Whether it outlives [`Host::undo`](crate::Host::undo), until
    /// [`open_kill_switch`](crate::open_kill_switch).
    pub persistent: bool,
    /// Whether private, link-local and multicast addresses of directly connected networks stay reachable.
    pub allow_lan: bool,
}

/// Name servers and search domains; nothing changes if there is no server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Servers, in order of preference. They serve all names, unless there is a domain `~name`.
    pub servers: Vec<IpAddr>,
    /// Search domains. `~name` completes no name, but has the servers asked for names in it, and not for those of other
    /// domains; `~.` stands for all.
    pub search: Vec<String>,
}

impl Dns {
    /// Returns whether the servers are asked for names of some domains only.
    pub(crate) fn routes_domains_alone(&self) -> bool {
        !self.servers.is_empty() && routes_domains_alone(&self.search)
    }
}

/// Returns whether these search domains divide names between servers.
pub(crate) fn routes_domains_alone(search: &[String]) -> bool {
    let routed = search.iter().filter_map(|it| it.strip_prefix('~'));
    let routed: Vec<_> = routed.collect();
    !routed.is_empty() && !routed.contains(&".")
}

impl Desired {
    /// Returns whether packets to all addresses of a family go into a table of their own.
    pub fn has_default(&self, ipv6: bool) -> bool {
        self.table == Table::Auto && (self.lists_default(ipv6) || self.composes_default(ipv6))
    }

    /// Returns whether the tunnel's networks hold an address to which it sends itself, whose packets would enter the
    /// tunnel.
    pub(crate) fn holds_outside(&self) -> bool {
        self.table == Table::Auto && !self.holders(&self.own_networks()).is_empty()
    }

    /// Returns whether this needs [`Desired::fwmark`].
    pub fn needs_mark(&self) -> bool {
        self.kill_switch.is_some()
            || self.has_default(false)
            || self.has_default(true)
            || self.holds_outside()
    }

    /// Returns whether the internet of a family is in the tunnel.
    pub(crate) fn takes_internet(&self, ipv6: bool) -> bool {
        let mut allowed = self.allowed.iter();
        self.has_default(ipv6)
            || (self.table == Table::Auto && allowed.any(|it| ipv6 && it.network() == GLOBAL_IPV6))
    }

    /// Returns whether the local network stays outside the tunnel, or may.
    pub(crate) fn wants_local(&self) -> bool {
        self.exclude_local || self.kill_switch.is_some_and(|switch| switch.allow_lan)
    }

    /// Returns whether connected networks matter, which may change over time.
    pub(crate) fn follows_local(&self) -> bool {
        let has_default = self.has_default(false) || self.has_default(true);
        self.wants_local() || self.kill_switch.is_some() || has_default
    }

    /// Returns whether all routes are in a table of their own, which rules consult before the host's.
    pub(crate) fn is_fenced(&self) -> bool {
        self.table == Table::Auto && self.needs_mark()
    }

    /// Returns whether there are routes of a family.
    pub(crate) fn fences(&self, ipv6: bool) -> bool {
        let holds_outside = || {
            let holders = self.holders(&self.own_networks());
            holders.iter().any(|network| network.is_ipv6() == ipv6)
        };
        let is_wanted = self.kill_switch.is_some() || self.has_default(ipv6) || holds_outside();
        self.table == Table::Auto && is_wanted
    }

    /// The networks that belong to the tunnel, by its addresses and by allowed IPs other than default routes; longest
    /// first.
    pub(crate) fn networks(&self) -> Vec<Prefix> {
        let mut networks = self.own_networks();
        networks.sort_by_key(|prefix| (std::cmp::Reverse(prefix.length()), *prefix));
        networks.dedup();
        networks
    }

    /// Networks that hold an endpoint, a name server that is asked for one, or addresses at which peers may be met:
    /// parts of the internet, if they hold it between them.
    pub(crate) fn holders(&self, networks: &[Prefix]) -> HashSet<Prefix> {
        let lengths: HashSet<u8> = networks.iter().map(Prefix::length).collect();
        let networks: HashSet<Prefix> = networks.iter().copied().collect();
        let around = |host: Prefix| {
            let wider = lengths
                .iter()
                .filter(move |length| **length <= host.length());
            wider.filter_map(move |length| Prefix::network_of(host.address(), *length))
        };
        let around = self.outside().flat_map(around);
        let parts = [false, true]
            .into_iter()
            .filter(|ipv6| self.is_met_within(&networks, *ipv6))
            .flat_map(|ipv6| networks.iter().filter(move |it| it.is_ipv6() == ipv6));
        let parts = parts.filter(|it| has_internet(it)).copied();
        around
            .filter(|network| networks.contains(network))
            .chain(parts)
            .collect()
    }

    /// Returns whether peers may be met at addresses of a family that only these networks hold.
    fn is_met_within(&self, networks: &HashSet<Prefix>, ipv6: bool) -> bool {
        self.meets_peers
            && !self.has_default(ipv6)
            && holes_in_internet(ipv6, |it| networks.contains(&it)).is_some()
    }

    /// As [`Desired::networks`], in no order.
    fn own_networks(&self) -> Vec<Prefix> {
        let excluded: Vec<_> = self.excluded.iter().map(Prefix::network).collect();
        let connected = self.addresses.iter().filter(|own| !own.is_host());
        let connected = connected.map(Prefix::network);
        let connected = connected.filter(|network| !excluded.contains(network));
        let composes =
            [false, true].map(|ipv6| !self.lists_default(ipv6) && self.composes_default(ipv6));
        let is_specific = |it: &Prefix| {
            let is_part =
                composes[usize::from(it.is_ipv6())] && it.length() <= Prefix::LONGEST_PART;
            !it.is_default() && !is_part
        };
        let allowed = self.allowed.iter().map(Prefix::network).filter(is_specific);
        let allowed = allowed.filter(|it| !excluded.iter().any(|hole| hole.contains(it)));
        let mut networks: Vec<_> = connected.chain(allowed).collect();
        // By their device alone.
        networks.retain(|network| !LINK_LOCAL.contains(network));
        networks
    }

    /// Returns whether an address connects a network that holds an endpoint, or a name server that is asked for one.
    pub(crate) fn connects_outside(&self, address: &Prefix) -> bool {
        let network = address.network();
        self.is_fenced() && !address.is_host() && self.outside().any(|host| network.contains(&host))
    }

    /// The hosts outside to which this tunnel itself sends.
    fn outside(&self) -> impl Iterator<Item = Prefix> {
        let all = self.endpoints.iter().chain(&self.servers);
        all.map(|address| Prefix::host(*address))
    }

    fn lists_default(&self, ipv6: bool) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|it| it.is_default() && it.is_ipv6() == ipv6)
    }

    /// Returns whether short prefixes make up all addresses, such as 0.0.0.0/1 and 128.0.0.0/1.
    fn composes_default(&self, ipv6: bool) -> bool {
        let parts = self.allowed.iter().map(Prefix::network);
        let parts = parts.filter(|it| it.is_ipv6() == ipv6 && it.length() <= Prefix::LONGEST_PART);
        let parts: Vec<_> = parts.collect();
        !parts.is_empty() && Prefix::default_of(ipv6).without(&parts).is_empty()
    }
}

/// Networks that every link has, and all that the internet has.
const LINK_LOCAL: Prefix = Prefix::of_ipv6([0xfe80, 0], 10);
const GLOBAL_IPV6: Prefix = Prefix::of_ipv6([0x2000, 0], 3);

/// The smallest MTU in bytes that every host accepts (RFC 8200 §5; RFC 791 §3.1). Below that of IPv6, the kernel
/// turns IPv6 off for the interface.
pub const fn smallest_mtu(ipv6: bool) -> u32 {
    if ipv6 { 1280 } else { 576 }
}

/// Accepts interface names as wg-quick does.
pub(crate) fn check_name(name: &str) -> Result<(), HostError> {
    let parsed: Result<InterfaceName, _> = name.parse();
    parsed
        .map(drop)
        .map_err(|_| HostError::Name(name.to_owned()))
}
