//! Two daemons that are each other's peer.

use crate::{
    error::LabError,
    lab::Lab,
    wireguard::{
        Identity, Implementation,
        end::{self, End},
    },
};

/// The cable between the ends.
const CABLE: &str = "veth0";

/// Which IP version carries the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underlay {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How a [`Tunnel`] is to be.
#[derive(Clone, Copy, Debug)]
pub struct TunnelOptions {
    /// Which IP version carries the tunnel.
    pub underlay: Underlay,
    /// The MTU of the cable in bytes.
    pub cable_mtu: u32,
    /// The MTU of the tunnel in bytes.
    pub tunnel_mtu: u32,
}

/// Ethernet, and WireGuard's usual MTU over it.
impl Default for TunnelOptions {
    fn default() -> Self {
        Self {
            underlay: Underlay::V4,
            cable_mtu: 1_500,
            tunnel_mtu: 1_420,
        }
    }
}

/// Two namespaces joined by a cable, and a WireGuard daemon in each.
pub struct Tunnel {
    /// The end that knows where the other is, and so speaks first.
    pub left: End,
    /// The end that waits to be spoken to.
    pub right: End,
}

impl Tunnel {
    /// Builds the tunnel: the cable, the daemons, keys, addresses and routes. No packet has gone
    /// through it yet.
    ///
    /// # Errors
    ///
    /// When a namespace or a link cannot be had, or a daemon does not start.
    pub fn new(
        lab: &Lab,
        left: &Implementation,
        right: &Implementation,
        options: &TunnelOptions,
    ) -> Result<Self, LabError> {
        let (a, b) = (lab.namespace("left")?, lab.namespace("right")?);
        let outer = |n: u8| [format!("10.9.0.{n}/24"), format!("fd09::{n}/64")];
        let (outer_a, outer_b) = (outer(1), outer(2));
        lab.veth(
            &a,
            CABLE,
            &outer_a.each_ref().map(String::as_str),
            &b,
            CABLE,
            &outer_b.each_ref().map(String::as_str),
            options.cable_mtu,
        )?;
        let (own, other) = (Identity::new(1), Identity::new(2));
        let to_right = other.as_peer(Some(end::outer(options.underlay, other.number)));
        let to_left = own.as_peer(None);
        let mtu = options.tunnel_mtu;
        Ok(Self {
            left: End::start(&a, left, &own, vec![to_right], mtu)?,
            right: End::start(&b, right, &other, vec![to_left], mtu)?,
        })
    }
}
