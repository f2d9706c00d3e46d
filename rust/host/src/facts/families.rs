//! The families, IPv4 and IPv6, that go through the tunnel, and those that leave outside.

use std::{fs, path::Path};

use convoy_types::Prefix;

use crate::{
    desired::{Desired, Table, smallest_mtu},
    route::Outside,
};

/// Whether IPv6 can go through the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    On,
    /// Other interfaces have IPv6, this one does not.
    OffHere,
    /// The configured MTU is too small for it.
    TooNarrow(u32),
    /// No interface has it.
    Absent,
}

impl Ipv6 {
    pub(super) fn of(interface: &str, mtu: Option<u32>) -> Self {
        // A new interface gets the default.
        let interface = match Path::new(IPV6).join(interface).exists() {
            true => interface,
            false => "default",
        };
        let is_elsewhere = interfaces_with_ipv6().any(|name| name != interface && name != "lo");
        match mtu.filter(|mtu| *mtu < smallest_mtu(true)) {
            Some(mtu) if is_elsewhere => Self::TooNarrow(mtu),
            None if has_ipv6(interface) => Self::On,
            _ if is_elsewhere => Self::OffHere,
            _ => Self::Absent,
        }
    }

    /// Warns of parts of the desired state that IPv6 will lack.
    pub(super) fn warnings(self, desired: &Desired) -> Vec<String> {
        let is_asked = desired.table != Table::Off && desired.allowed.iter().any(Prefix::is_ipv6);
        let has_address = desired.addresses.iter().any(Prefix::is_ipv6);
        let fate = match is_asked {
            true => "packets for the IPv6 networks of AllowedIPs are refused",
            false => "its IPv6 addresses are left out",
        };
        match self {
            Self::OffHere if is_asked || has_address => vec![format!(
                "IPv6 is off for this interface (net.ipv6.conf.default.disable_ipv6): {fate}"
            )],
            Self::TooNarrow(mtu) if is_asked || has_address => vec![format!(
                "the MTU of {mtu} is too small for IPv6, which needs 1280: {fate}"
            )],
            Self::Absent if has_address => {
                vec!["IPv6 is off on this host: its addresses and routes are left out".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

/// Warns of a default route for one family while the host has routes of the other one, too.
pub(super) fn half(desired: &Desired, outside: &[Outside; 2], tunnels: &[u32]) -> Option<String> {
    if desired.kill_switch.is_some() {
        return None;
    }
    let has = [false, true].map(|ipv6| desired.takes_internet(ipv6));
    let is_bare =
        |ipv6: bool| outside[usize::from(ipv6)].has_default || (ipv6 && has_global_ipv6(tunnels));
    match has {
        [true, false] if is_bare(true) => Some(
            "IPv6 leaves outside the tunnel: AllowedIPs has 0.0.0.0/0, but not ::/0, and this host has IPv6".to_owned(),
        ),
        [false, true] if is_bare(false) => Some(
            "IPv4 leaves outside the tunnel: AllowedIPs has ::/0, but not 0.0.0.0/0, and this host has IPv4".to_owned(),
        ),
        _ => None,
    }
}

/// Returns whether the kernel has IPv6 and it is not disabled for the interface.
fn has_ipv6(interface: &str) -> bool {
    let path = format!("{IPV6}/{interface}/disable_ipv6");
    fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
}

fn interfaces_with_ipv6() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(IPV6).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name != "all" && name != "default" && has_ipv6(name))
}

const IPV6: &str = "/proc/sys/net/ipv6/conf";

/// Returns whether an interface other than a tunnel's has an IPv6 address of the internet.
fn has_global_ipv6(tunnels: &[u32]) -> bool {
    let text = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    text.lines().any(|line| is_global_ipv6(line, tunnels))
}

/// Returns whether a line of if_inet6 has an address of 2000::/3, of none of these interfaces.
fn is_global_ipv6(line: &str, tunnels: &[u32]) -> bool {
    let mut fields = line.split_whitespace();
    let is_global = fields
        .next()
        .is_some_and(|address| address.starts_with(['2', '3']));
    let index = fields
        .next()
        .and_then(|index| u32::from_str_radix(index, 16).ok());
    is_global && index.is_some_and(|index| !tunnels.contains(&index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_internet_is_found_unless_a_tunnel_has_it() {
        for (line, expected) in [
            (
                "20010db8000200000000000000000002 02 40 00 80     eth0",
                true,
            ),
            (
                "20010db8000200000000000000000002 07 40 00 80      wg1",
                false,
            ),
            (
                "fe800000000000000000000000000001 02 40 20 80     eth0",
                false,
            ),
            (
                "fd080000000000000000000000000002 02 40 00 80     eth0",
                false,
            ),
            (
                "00000000000000000000000000000001 01 80 10 80       lo",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_global_ipv6(line, &[7]), expected, "{line}");
        }
    }
}
