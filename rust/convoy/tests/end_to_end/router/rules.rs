//! A router's rules, as nft(8) takes them.

use std::net::{IpAddr, Ipv4Addr};

/// A router's interface toward the internet.
pub(super) const OUTSIDE: &str = "wan";
/// Ends all cuts.
pub(super) const MEND: &str =
    "flush set inet convoy_router cut4\nflush set inet convoy_router cut6\n";

/// The translation of IPv4 addresses by a router, which never translates those of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nat {
    /// Routes, and filters nothing.
    None,
    /// Maps a source to the same address for all destinations, as most homes do; lets in only replies
    /// (RFC 4787: endpoint-independent mapping, address- and port-dependent filtering).
    Home,
    /// Maps each flow to a port of its own (RFC 4787: address- and port-dependent mapping).
    Hard,
}

/// The shape of a [`Router`](super::Router).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterOptions {
    /// Translation of IPv4. With any, a stateful firewall protects both families.
    pub(crate) nat: Nat,
    /// Whether hosts inside reach each other by their addresses outside.
    pub(crate) hairpin: bool,
    /// Whether hosts inside have addresses of IPv6; not behind a router that is itself behind another one.
    pub(crate) ipv6: bool,
    /// The first two parts of the addresses inside.
    pub(crate) inside: [u8; 2],
}

/// A home of today without IPv6: endpoint-independent mapping, no hairpin.
impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            nat: Nat::Home,
            hairpin: false,
            ipv6: false,
            inside: [192, 168],
        }
    }
}

/// Returns the rules of a router with this address outside.
pub(super) fn of(options: &RouterOptions, outside: Ipv4Addr) -> String {
    let is_filtering = options.nat != Nat::None;
    filter(is_filtering, options.hairpin) + &translation(options, outside)
}

/// Drops what goes to and comes from `address`.
pub(super) fn cut(address: IpAddr) -> String {
    let set = if address.is_ipv4() { "cut4" } else { "cut6" };
    format!("add element inet convoy_router {set} {{ {address} }}\n")
}

fn filter(is_filtering: bool, hairpin: bool) -> String {
    let policy = if is_filtering { "drop" } else { "accept" };
    let hairpinned = if hairpin { "accept" } else { "drop" };
    // Without the last rule, the router would tell strangers that nobody listens.
    let refuses = if is_filtering {
        "meta l4proto udp drop"
    } else {
        ""
    };
    format!(
        "table inet convoy_router {{
            set cut4 {{ type ipv4_addr; }}
            set cut6 {{ type ipv6_addr; }}
            chain forward {{
                type filter hook forward priority 0; policy {policy};
                ip saddr @cut4 drop
                ip daddr @cut4 drop
                ip6 saddr @cut6 drop
                ip6 daddr @cut6 drop
                ct state established,related accept
                iifname \"lan*\" oifname \"{OUTSIDE}\" accept
                iifname \"lan*\" oifname \"lan*\" ct status dnat {hairpinned}
                iifname \"lan*\" oifname \"lan*\" accept
            }}
            chain input {{
                type filter hook input priority 0;
                {refuses}
            }}
        }}
"
    )
}

/// Returns the table of NAT. With endpoint-independent mapping, an arriving packet is first translated back, then
/// dropped by the filter unless it is a reply: else it would leave an entry behind that takes the port from the flow
/// that is to meet it.
fn translation(options: &RouterOptions, outside: Ipv4Addr) -> String {
    let (map, arriving, noted, random) = match options.nat {
        Nat::None => return String::new(),
        Nat::Home => (
            "map mapped {
                type inet_service : ipv4_addr . inet_service
                flags dynamic,timeout
                timeout 5m
                size 4096
            }",
            format!("ip daddr {outside} meta l4proto udp dnat ip to udp dport map @mapped"),
            format!(
                "oifname \"{OUTSIDE}\" meta l4proto udp \
                 update @mapped {{ udp sport : ip saddr . udp sport }}"
            ),
            "",
        ),
        Nat::Hard => ("", String::new(), String::new(), "fully-random"),
    };
    format!(
        "table ip convoy_nat {{
            {map}
            chain arriving {{
                type nat hook prerouting priority dstnat;
                {arriving}
            }}
            chain leaving {{
                type nat hook postrouting priority srcnat;
                {noted}
                oifname \"{OUTSIDE}\" snat to {outside} {random}
                oifname \"lan*\" ct status dnat snat to {outside}
            }}
        }}
"
    )
}
