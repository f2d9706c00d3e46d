//! The desired state of the host.

use std::net::IpAddr;

use crate::{error::HostError, prefix::Prefix};

/// The state of the host that the configuration of one interface wants.
///
/// The interface itself must exist; this crate neither makes nor removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of the interface.
    pub addresses: Vec<Prefix>,
    /// The interface's MTU in bytes; computed from the routes to `endpoints` if absent.
    pub mtu: Option<u32>,
    /// The largest MTU in bytes that was found to work: neither `mtu` nor the routes lead to a larger one. Ignored
    /// below [`smallest_mtu`].
    pub mtu_at_most: Option<u32>,
    /// The peers' endpoints, as far as known.
    pub endpoints: Vec<IpAddr>,
    /// The peers' allowed IPs, which become routes.
    pub allowed: Vec<Prefix>,
    /// Where routes go.
    pub table: Table,
    /// The mark of the tunnel's own datagrams. Needed for a default route in [`Table::Auto`] and for a kill
    /// switch: see [`Host::pick_mark`](crate::Host::pick_mark).
    pub fwmark: Option<u32>,
    /// Networks that stay outside the tunnel although `allowed` holds them.
    pub excluded: Vec<Prefix>,
    /// Whether directly connected networks stay outside the tunnel too; followed as they change.
    pub exclude_local: bool,
    /// Drops everything outside the tunnel.
    pub kill_switch: Option<KillSwitch>,
    /// Name servers and search domains.
    pub dns: Dns,
}

/// Where routes go, as `Table` of wg-quick(8).
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
    /// Servers, in order of preference. They serve all names.
    pub servers: Vec<IpAddr>,
    /// Search domains. `~name` completes no name, but has the servers asked for names in it.
    pub search: Vec<String>,
}

impl Desired {
    /// Whether packets to all addresses of a family go into a table of their own.
    pub fn has_default(&self, ipv6: bool) -> bool {
        let mut families = self.allowed.iter();
        self.table == Table::Auto && families.any(|p| p.is_default() && p.is_ipv6() == ipv6)
    }

    /// Whether this needs [`Desired::fwmark`].
    pub fn needs_mark(&self) -> bool {
        self.kill_switch.is_some() || self.has_default(false) || self.has_default(true)
    }
}

/// The smallest MTU in bytes that every host accepts (RFC 8200 §5; RFC 791 §3.1). Below that of IPv6, the kernel
/// turns IPv6 off for the interface.
pub const fn smallest_mtu(ipv6: bool) -> u32 {
    if ipv6 { 1280 } else { 576 }
}

/// Accepts interface names as wg-quick does.
pub(crate) fn check_name(name: &str) -> Result<(), HostError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
    let is_name = (1..=15).contains(&name.len()) && name.chars().all(is_plain);
    match name {
        "." | ".." => Err(HostError::Name(name.to_owned())),
        _ if is_name => Ok(()),
        _ => Err(HostError::Name(name.to_owned())),
    }
}
