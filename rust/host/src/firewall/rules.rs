//! The text of the rules.

use crate::{
    desired::{Desired, KillSwitch},
    firewall::{Ruleset, identifier, table},
    prefix::Prefix,
};

/// Networks that a kill switch lets out to, and the devices that it guards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// Networks outside the tunnel by configuration.
    pub(crate) excluded: Vec<Prefix>,
    /// Directly connected networks.
    pub(crate) connected: Vec<Prefix>,
    /// Names of the devices that lead to the internet, or may.
    pub(crate) underlay: Vec<String>,
}

/// Ranges that a directly connected network must be in to count as LAN.
const PRIVATE: [&str; 6] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// Destinations on the LAN that no route connects.
const LAN_MULTICAST: [&str; 3] = ["224.0.0.0/4", "255.255.255.255/32", "ff02::/16"];

/// The tables that `desired` needs; `None` without a default route and kill switch.
pub(crate) fn ruleset(interface: &str, desired: &Desired, allowed: &Allowed) -> Option<Ruleset> {
    let mark = desired.fwmark?;
    let families = [false, true].map(|ipv6| desired.has_default(ipv6));
    let mut chains = String::new();
    if families.contains(&true) {
        chains += &anti_spoofing(interface, desired, families, mark);
    }
    if let Some(switch) = desired.kill_switch {
        chains += &barrier(interface, switch, mark, allowed);
    }
    let table = table(interface);
    (!chains.is_empty()).then(|| Ruleset {
        inet: format!("table inet {table} {{\n{chains}}}\n"),
        egress: desired
            .kill_switch
            .and_then(|switch| egress(&table, switch, mark, allowed)),
        is_kill_switch: desired.kill_switch.is_some(),
        is_persistent: desired.kill_switch.is_some_and(|switch| switch.persistent),
        table,
    })
}

/// The tables of the kill switch alone, which guards packet sockets on these devices.
pub(crate) fn kill_switch(
    interface: &str,
    switch: KillSwitch,
    mark: u32,
    devices: &[String],
) -> Ruleset {
    let table = table(interface);
    let allowed = Allowed {
        underlay: devices.to_vec(),
        ..Allowed::default()
    };
    let chains = barrier(interface, switch, mark, &allowed);
    Ruleset {
        inet: format!("table inet {table} {{\n{chains}}}\n"),
        egress: egress(&table, switch, mark, &allowed),
        is_kill_switch: true,
        is_persistent: switch.persistent,
        table,
    }
}

/// As wg-quick(8) does: nobody on another link reaches the tunnel's addresses, and replies to our datagrams
/// have our mark, so that the reverse path filter accepts them. So have those to look-ups by TCP.
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
fn barrier(interface: &str, switch: KillSwitch, mark: u32, allowed: &Allowed) -> String {
    let outside = outside(switch, mark, allowed);
    format!(
        "  chain output {{
    type filter hook output priority 0; policy drop;
    oifname {{ \"lo\", \"{interface}\" }} accept
{outside}    drop
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    oifname \"{interface}\" accept
    iifname \"{interface}\" ct state established,related accept
{lan}    drop
  }}
",
        lan = destinations(switch, allowed),
    )
}

/// Packet sockets send below the output hook. Each device has a base chain of its own, because older kernels cannot
/// add a device to one.
fn egress(table: &str, switch: KillSwitch, mark: u32, allowed: &Allowed) -> Option<String> {
    if allowed.underlay.is_empty() {
        return None;
    }
    let outside = outside(switch, mark, allowed);
    let mut chains = format!(
        "  chain outside {{
    meta protocol != ip meta protocol != ip6 accept
{outside}    drop
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
fn outside(switch: KillSwitch, mark: u32, allowed: &Allowed) -> String {
    format!(
        "    meta mark {mark} meta l4proto udp accept
    meta mark {mark} tcp dport 53 accept
    meta protocol ip udp sport 68 udp dport 67 accept
    meta protocol ip6 udp sport 546 udp dport 547 accept
    icmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
mld-listener-report, mld2-listener-report }} accept
{destinations}",
        destinations = destinations(switch, allowed),
    )
}

fn destinations(switch: KillSwitch, allowed: &Allowed) -> String {
    let mut open = allowed.excluded.clone();
    if switch.allow_lan {
        let [private, multicast] = [&PRIVATE[..], &LAN_MULTICAST[..]].map(|ranges| {
            let parsed = ranges.iter().filter_map(|range| range.parse().ok());
            parsed.collect::<Vec<Prefix>>()
        });
        let is_private = |network: &&Prefix| private.iter().any(|range| range.contains(network));
        open.extend(allowed.connected.iter().filter(is_private));
        open.extend(multicast);
    }
    open.iter()
        .map(|prefix| format!("    {} daddr {} accept\n", family(prefix), prefix.network()))
        .collect()
}

fn family(prefix: &Prefix) -> &'static str {
    if prefix.is_ipv6() { "ip6" } else { "ip" }
}
