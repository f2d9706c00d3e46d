//! The inlet: a second TUN, from which the owner reads what begins a flow of a peer to an address outside.
//!
//! ```text
//!                ┌── segments and datagrams of flows that exist ───────▶ transparent sockets of the owner
//!  TUN ─ peers ──┤
//!                └── SYN, first datagrams, echo requests ────▶ inlet ──▶ owner
//!  TUN ◀──────────── the SYN, admitted: a transparent listener accepts ◀─┤
//!  TUN ◀──────────── RST, ICMP errors, echo replies ◀─────── inlet ◀─────┘
//! ```
//!
//! Decisions:
//!
//! - **A TUN, where NFQUEUE would hold the SYN.** nft's `queue` is a module of its own, which some kernels lack; the
//!   owner's answers would need raw sockets; and packets that wait for a verdict are the kernel's to bound. What comes
//!   out of the inlet is the owner's alone to keep.
//! - **The kernel forwards to the inlet**, so that a packet whose TTL ends there is answered as by any router.
//! - **Only what begins a flow takes this way.** The kernel itself finds the socket of a flow that exists. Fragments do
//!   as well while there are many: the kernel's memory for them is not divided among peers, the owner's is. Segments that
//!   it puts together come back as an admitted SYN does.

mod listening;
mod rules;

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use super::{protocol::Refusal, settings::Settings};
use convoy_netlink::{LinkChange, Netlink, NetlinkError, Route, RouteScope, RouteType, Rule};
use convoy_tun::Device;
use convoy_types::Prefix;
use convoy_types::Switch;
use listening::Listening;
pub(super) use rules::NAME;
use rules::{ADMITTED, FIRST};

/// No packet is cut on its way to the owner.
const MTU: u32 = 65_535;

/// The tables of the routes to the inlet, and to sockets of this namespace.
const TO_INLET: u32 = 1_001;
const TO_SOCKETS: u32 = 1_002;

/// Sockets that the owner of a namespace for a gateway gets.
#[derive(Debug)]
pub struct Inlet {
    /// A TUN without a virtio header, which does not block.
    pub device: OwnedFd,
    /// Transparent TCP listeners, one for each address family that the namespace has.
    pub listeners: Vec<OwnedFd>,
}

/// Opens the TUN.
pub(super) fn open() -> Result<OwnedFd, Refusal> {
    let device = Device::open(NAME, Switch::Off);
    let device = device.map_err(|error| Refusal::of_tun(&error))?;
    let device = device.as_fd().try_clone_to_owned();
    device.map_err(Refusal::at("duplicate the inlet"))
}

/// Sets the interface up, and leads packets to it, given the indices of loopback and the inlet.
pub(super) async fn configure(
    netlink: &Netlink,
    settings: &Settings,
    [loopback, inlet]: [u32; 2],
) -> Result<(), Refusal> {
    let up = LinkChange {
        mtu: Some(MTU),
        ..LinkChange::UP
    };
    let set = netlink.change_link(inlet, up).await;
    set.map_err(Refusal::of_netlink("set the inlet up"))?;
    for is_ipv6 in families(settings) {
        for route in [
            route(is_ipv6, RouteType::Unicast, inlet, TO_INLET),
            route(is_ipv6, RouteType::Local, loopback, TO_SOCKETS),
        ] {
            let added = netlink.add_route(&route).await;
            added.map_err(Refusal::of_netlink("add the inlet's routes"))?;
        }
        for (priority, when, table) in [
            (1, When::Marked(FIRST), TO_INLET),
            (2, When::Marked(ADMITTED), TO_SOCKETS),
            (3, When::From(&settings.interface), TO_SOCKETS),
        ] {
            let added = add_rule(netlink, is_ipv6, priority, when, table).await;
            added.map_err(Refusal::of_netlink("add the inlet's rules"))?;
        }
    }
    Ok(())
}

/// Makes the kernel forward, listen and sort; returns the listeners.
pub(super) fn finish(settings: &Settings) -> Result<Vec<OwnedFd>, Refusal> {
    for (file, value) in switches(settings) {
        let path = Path::new("/proc/sys/net").join(&file);
        fs::write(path, value).map_err(Refusal::at(format!("write to sysctl net/{file}")))?;
    }
    let mut listeners = Vec::new();
    for is_ipv6 in families(settings) {
        let listening = Listening::new(is_ipv6);
        listeners.push(listening.map_err(Refusal::at("listen for flows of peers"))?);
    }
    rules::apply(&settings.interface, &settings.addresses, &listeners)?;
    Ok(listeners.into_iter().map(|it| it.socket).collect())
}

/// Returns whether it is IPv6, for each family that the namespace has an address of.
fn families(settings: &Settings) -> impl Iterator<Item = bool> {
    let has = |is_ipv6: &bool| {
        let mut addresses = settings.addresses.iter();
        addresses.any(|(address, _)| address.is_ipv6() == *is_ipv6)
    };
    [false, true].into_iter().filter(has)
}

/// A default route.
fn route(is_ipv6: bool, kind: RouteType, interface: u32, table: u32) -> Route {
    let route = Route::by_device(table, Prefix::default_of(is_ipv6), interface);
    let scope = match kind {
        RouteType::Local if !is_ipv6 => RouteScope::Host,
        _ => route.scope,
    };
    Route {
        kind,
        scope,
        ..route
    }
}

/// Packets that a rule matches.
enum When<'a> {
    Marked(u32),
    From(&'a str),
}

async fn add_rule(
    netlink: &Netlink,
    is_ipv6: bool,
    priority: u32,
    when: When<'_>,
    table: u32,
) -> Result<(), NetlinkError> {
    let rule = Rule {
        ipv6: is_ipv6,
        priority,
        table,
        ..Rule::default()
    };
    match when {
        When::Marked(mark) => {
            let mark = Some(mark);
            netlink.add_rule(&Rule { mark, ..rule }).await
        }
        When::From(interface) => netlink.add_rule_from(&rule, interface).await,
    }
}

/// Settings of the kernel below `net`, and their values.
fn switches(settings: &Settings) -> Vec<(String, &'static str)> {
    let of_inlet = |name| format!("ipv4/conf/{NAME}/{name}");
    let mut switches = vec![
        // An ICMP error of a peer must not shorten the packets to others: TCP alone can check it.
        ("ipv4/ip_no_pmtu_disc".to_owned(), "3"),
    ];
    for is_ipv6 in families(settings) {
        switches.extend(match is_ipv6 {
            false => vec![
                ("ipv4/ip_forward".to_owned(), "1"),
                // What the owner writes has other addresses than those to which the inlet leads.
                ("ipv4/conf/all/rp_filter".to_owned(), "0"),
                (of_inlet("rp_filter"), "0"),
                // ICMP errors come from an address of this namespace.
                (of_inlet("accept_local"), "1"),
            ],
            true => vec![("ipv6/conf/all/forwarding".to_owned(), "1")],
        });
    }
    switches
}
