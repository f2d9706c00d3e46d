//! Two daemons that are each other's peers.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::lab::Lab;
use crate::wireguard::end::{self, End, Underlay};
use crate::wireguard::{Identity, Implementation, KeyPair, Peer};

/// The cable between the ends.
const CABLE: &str = "veth0";
/// Overhead of an outer packet in bytes: the headers of IPv6, UDP and WireGuard, and the tag.
const OVERHEAD: u32 = 40 + 8 + 16 + 16;
/// First address of the idle peers.
const FIRST_IDLE_V4: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
const FIRST_IDLE_V6: Ipv6Addr = Ipv6Addr::new(0xfd08, 0, 0, 1, 0, 0, 0, 0);

/// The shape of a [`Tunnel`].
#[derive(Clone, Copy, Debug)]
pub struct TunnelOptions {
    /// The IP version that carries the tunnel.
    pub underlay: Underlay,
    /// The MTU of the cable in bytes.
    pub cable_mtu: u32,
    /// The MTU of the tunnel in bytes.
    pub tunnel_mtu: u32,
    /// Idle peers of each daemon, with addresses but without endpoint; they stay silent.
    pub idle_peers: u32,
}

/// MTU of Ethernet, and WireGuard's usual MTU over it.
impl Default for TunnelOptions {
    fn default() -> Self {
        Self {
            underlay: Underlay::V4,
            cable_mtu: 1_500,
            tunnel_mtu: 1_420,
            idle_peers: 0,
        }
    }
}

impl TunnelOptions {
    /// A tunnel with this MTU in bytes, and a cable that carries it: Ethernet's MTU unless that is too small.
    pub fn of_mtu(tunnel_mtu: u32) -> Self {
        let usual = Self::default();
        Self {
            cable_mtu: usual.cable_mtu.max(tunnel_mtu + OVERHEAD),
            tunnel_mtu,
            ..usual
        }
    }
}

/// Two namespaces joined by a cable, with a WireGuard daemon in each.
pub struct Tunnel {
    /// The end that knows the other's address, and so starts the handshake.
    pub left: End,
    /// The end that waits for the handshake.
    pub right: End,
}

impl Tunnel {
    /// Builds the tunnel: the cable, the daemons, keys, addresses and routes. No packet has passed
    /// through it yet.
    pub fn new(
        lab: &Lab,
        left: &Implementation,
        right: &Implementation,
        options: &TunnelOptions,
    ) -> Result<Self> {
        let (a, b) = (lab.namespace("left")?, lab.namespace("right")?);
        let (outer_a, outer_b) = (["10.9.0.1/24", "fd09::1/64"], ["10.9.0.2/24", "fd09::2/64"]);
        lab.veth(&a, CABLE, &outer_a, &b, CABLE, &outer_b, options.cable_mtu)?;
        let (own, other) = (Identity::new(1), Identity::new(2));
        let to_right = other.as_peer(Some(end::outer(options.underlay, other.number)));
        let to_left = own.as_peer(None);
        let mtu = options.tunnel_mtu;
        let idle = idle_peers(options.idle_peers);
        let with_idle = |peer| [vec![peer], idle.clone()].concat();
        Ok(Self {
            left: End::start(&a, left, &own, with_idle(to_right), mtu)?,
            right: End::start(&b, right, &other, with_idle(to_left), mtu)?,
        })
    }
}

fn idle_peers(count: u32) -> Vec<Peer> {
    let peer = |number: u32| {
        let v4 = Ipv4Addr::from_bits(FIRST_IDLE_V4.to_bits() + number);
        let v6 = Ipv6Addr::from_bits(FIRST_IDLE_V6.to_bits() + u128::from(number));
        Peer {
            public_key: KeyPair::generate().public,
            allowed_ips: vec![format!("{v4}/32"), format!("{v6}/128")],
            ..Peer::default()
        }
    };
    (0..count).map(peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_carries_what_the_tunnel_takes_over_either_ip_version() {
        let cables = [1_280, 1_420, 1_421, 8_920, 65_455];
        let cables = cables.map(|mtu| TunnelOptions::of_mtu(mtu).cable_mtu);
        assert_eq!(cables, [1_500, 1_500, 1_501, 9_000, 65_535]);
    }
}
