//! The text of the rules.

use std::net::{Ipv4Addr, SocketAddr};

use convoy_types::Prefix;

use crate::{
    desired::{Desired, KillSwitch},
    firewall::{Ruleset, identifier, table},
};

/// Networks that a kill switch lets out to, and the devices that it guards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// Networks outside the tunnel by configuration.
    pub(crate) excluded: Vec<Prefix>,
    /// The local network.
    pub(crate) local: Vec<Prefix>,
    /// All directly connected networks, where DHCP servers may be.
    pub(crate) connected: Vec<Prefix>,
    /// TURN servers that sockets with the mark may connect to by TCP.
    pub(crate) streams: Vec<SocketAddr>,
    /// Names of the devices that lead to the internet, or may.
    pub(crate) underlay: Vec<String>,
    /// The router that is asked to forward a port.
    pub(crate) router: Option<Ipv4Addr>,
}

/// Lets everything out for a limited time. The kernel ends it, whatever happens to this process, as the element of a
/// set times out; but it does not count time asleep. The wall clock does, but it may be set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) seconds: u64,
    /// In seconds since 1970.
    pub(crate) until: u64,
}

impl Opening {
    fn set(self) -> String {
        let seconds = self.seconds;
        format!(
            "  set paused {{ type ether_type; flags timeout; \
             elements = {{ ip timeout {seconds}s, ip6 timeout {seconds}s }}; }}\n"
        )
    }

    fn rule(self) -> String {
        let until = self.until;
        format!("    meta protocol @paused meta time < \"{until}\" accept\n")
    }
}

/// Destinations on the LAN that no route connects.
const LAN_MULTICAST: [&str; 3] = ["224.0.0.0/4", "255.255.255.255/32", "ff02::/16"];

/// The tables that `desired` needs; `None` if its routes are in the main table and there is no kill switch.
pub(crate) fn ruleset(
    interface: &str,
    desired: &Desired,
    allowed: &Allowed,
    opening: Option<Opening>,
) -> Option<Ruleset> {
    let mark = desired.fwmark?;
    let families = [false, true].map(|ipv6| desired.has_default(ipv6));
    let mut chains = String::new();
    if desired.is_fenced() {
        chains += &anti_spoofing(interface, desired, families, mark);
    }
    if let Some(switch) = desired.kill_switch {
        chains += &barrier(interface, switch, Some(mark), allowed, opening);
    }
    let table = table(interface);
    (!chains.is_empty()).then(|| Ruleset {
        inet: format!("table inet {table} {{\n{chains}}}\n"),
        egress: desired
            .kill_switch
            .and_then(|switch| egress(&table, switch, Some(mark), allowed, opening)),
        is_kill_switch: desired.kill_switch.is_some(),
        is_persistent: desired.kill_switch.is_some_and(|switch| switch.persistent),
        table,
    })
}

/// The tables of the kill switch alone, which guards packet sockets on these devices.
pub(crate) fn kill_switch(
    interface: &str,
    switch: KillSwitch,
    mark: Option<u32>,
    devices: &[String],
) -> Ruleset {
    let table = table(interface);
    let allowed = Allowed {
        underlay: devices.to_vec(),
        ..Allowed::default()
    };
    let chains = barrier(interface, switch, mark, &allowed, None);
    Ruleset {
        inet: format!("table inet {table} {{\n{chains}}}\n"),
        egress: egress(&table, switch, mark, &allowed, None),
        is_kill_switch: true,
        is_persistent: switch.persistent,
        table,
    }
}

/// Guards the tunnel as wg-quick(8) does: hosts on other links cannot reach its addresses, and replies to our datagrams
/// and to look-ups by TCP get our mark, so that the reverse path filter accepts them.
fn anti_spoofing(interface: &str, desired: &Desired, families: [bool; 2], mark: u32) -> String {
    let guarded = desired.addresses.iter();
    let guarded = guarded.filter(|prefix| families[usize::from(prefix.is_ipv6())]);
    let drops: String = guarded
        .map(|prefix| {
            let (family, address) = (family(prefix), prefix.address());
            format!(
                "    iifname != \"{interface}\" {family} daddr {address} fib saddr type != local drop\n"
            )
        })
        .collect();
    format!(
        "  chain preraw {{
    type filter hook prerouting priority -300; policy accept;
{drops}  }}
  chain premangle {{
    type filter hook prerouting priority -150; policy accept;
    meta l4proto {{ tcp, udp }} ct mark {mark} meta mark set ct mark
  }}
  chain postmangle {{
    type filter hook postrouting priority -150; policy accept;
    meta l4proto {{ tcp, udp }} meta mark {mark} ct mark set meta mark
  }}
"
    )
}

/// The last rules drop what the policies would: those of new chains take effect late.
fn barrier(
    interface: &str,
    switch: KillSwitch,
    mark: Option<u32>,
    allowed: &Allowed,
    opening: Option<Opening>,
) -> String {
    let outside = outside(switch, mark, allowed);
    let set = opening.map(Opening::set).unwrap_or_default();
    let open = opening.map(Opening::rule).unwrap_or_default();
    format!(
        "{set}  chain output {{
    type filter hook output priority 0; policy drop;
{open}    oifname {{ \"lo\", \"{interface}\" }} accept
{outside}    drop
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
{open}    oifname \"{interface}\" accept
    iifname \"{interface}\" ct state established,related accept
{lan}    drop
  }}
",
        lan = destinations(switch, allowed),
    )
}

/// Packet sockets send below the output hook. Each device has a base chain of its own, because older kernels cannot
/// add a device to one.
fn egress(
    table: &str,
    switch: KillSwitch,
    mark: Option<u32>,
    allowed: &Allowed,
    opening: Option<Opening>,
) -> Option<String> {
    if allowed.underlay.is_empty() {
        return None;
    }
    let outside = outside(switch, mark, allowed);
    let set = opening.map(Opening::set).unwrap_or_default();
    let open = opening.map(Opening::rule).unwrap_or_default();
    let mut chains = format!(
        "{set}  chain outside {{
    meta protocol != ip meta protocol != ip6 accept
{open}{outside}    drop
  }}
"
    );
    // nft(8) cannot quote quotation marks.
    let devices = allowed.underlay.iter();
    for device in devices.filter(|device| !device.contains('"')) {
        chains += &format!(
            "  chain on_{name} {{
    type filter hook egress device \"{device}\" priority 0; policy drop;
    goto outside
  }}
",
            name = identifier(device),
        );
    }
    Some(format!("table netdev {table} {{\n{chains}}}\n"))
}

/// Lets out our datagrams and look-ups, and the protocols that keep the link itself working.
fn outside(switch: KillSwitch, mark: Option<u32>, allowed: &Allowed) -> String {
    let ours = mark.map(|mark| {
        format!(
            "    meta mark {mark} meta l4proto udp accept
    meta mark {mark} tcp dport 53 accept
{streams}{asks}",
            streams = streams(mark, allowed),
            asks = allowed
                .router
                .map(|router| asks(mark, router))
                .unwrap_or_default(),
        )
    });
    format!(
        "{ours}{dhcp}    icmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
mld-listener-report, mld2-listener-report }} accept
{destinations}",
        ours = ours.unwrap_or_default(),
        dhcp = dhcp(allowed),
        destinations = destinations(switch, allowed),
    )
}

/// Lets our streams to TURN servers out, and no other connections with the mark.
fn streams(mark: u32, allowed: &Allowed) -> String {
    let mut rules = String::new();
    for server in &allowed.streams {
        let family = if server.is_ipv6() { "ip6" } else { "ip" };
        let (ip, port) = (server.ip(), server.port());
        rules += &format!("    meta mark {mark} {family} daddr {ip} tcp dport {port} accept\n");
    }
    rules
}

/// Lets requests for port mappings out to the router: UPnP uses TCP, to any port.
fn asks(mark: u32, router: Ipv4Addr) -> String {
    format!("    meta mark {mark} ip daddr {router} meta l4proto tcp accept\n")
}

/// Lets DHCP clients reach servers, which are on the next link or get broadcasts: any user may have their ports.
fn dhcp(allowed: &Allowed) -> String {
    let near = allowed.connected.iter();
    let near = near.filter(|network| !network.is_ipv6() && network.length() >= WIDEST_WITH_DHCP);
    let near = near
        .take(MOST_WITH_DHCP)
        .map(|network| network.network().to_string());
    let v4 = std::iter::once("255.255.255.255/32".to_owned()).chain(near);
    let v4 = v4.map(|to| format!("    ip daddr {to} udp sport 68 udp dport 67 accept\n"));
    let v6 = ["ff02::1:2", "fe80::/10"];
    let v6 = v6.map(|to| format!("    ip6 daddr {to} udp sport 546 udp dport 547 accept\n"));
    v4.chain(v6).collect()
}

/// Widest network in which a DHCP server may be.
const WIDEST_WITH_DHCP: u8 = 8;
/// Most networks of a host in which a DHCP server may be.
const MOST_WITH_DHCP: usize = 64;

fn destinations(switch: KillSwitch, allowed: &Allowed) -> String {
    let mut open = allowed.excluded.clone();
    if switch.allow_lan {
        open.extend(&allowed.local);
        let multicast = LAN_MULTICAST.iter();
        open.extend(multicast.filter_map(|range| range.parse::<Prefix>().ok()));
    }
    open.iter()
        .map(|prefix| format!("    {} daddr {} accept\n", family(prefix), prefix.network()))
        .collect()
}

fn family(prefix: &Prefix) -> &'static str {
    if prefix.is_ipv6() { "ip6" } else { "ip" }
}
