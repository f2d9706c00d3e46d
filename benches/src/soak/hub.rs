//! Hub and spokes, with their daemons.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result};
use convoy_lab::Lab;
use convoy_lab::measure::Host;
use convoy_lab::wireguard::{End, Identity, Implementation};

use crate::agent::{TUNNEL_MTU, connect, set};
use crate::programs;

/// The numbers from which the spokes' addresses are derived.
pub(super) const SPOKES: [u8; 4] = [2, 3, 4, 5];
/// The hub's number, and the port that the spokes contact first.
const HUB: u8 = 1;
pub(super) const PORT: u16 = 51_820;
/// The interface at a spoke's end of its cable.
pub(super) const CABLE: &str = "veth0";
/// IPv6 router solicitations have no route in the tunnel: the kernels are to send none.
const SOLICITATIONS: &str = "ipv6/conf/default/router_solicitations";

/// A hub and its spokes, before any traffic through the tunnels.
pub(super) struct Hub {
    pub(super) hub: End,
    /// Processors of the machine.
    pub(super) cpus: f64,
    /// In the order of [`SPOKES`].
    pub(super) spokes: Vec<End>,
    // Dropped last: everything inside ends with it.
    _lab: Lab,
}

impl Hub {
    pub(super) fn start(program: &Path) -> Result<Self> {
        programs::ensure_root()?;
        let lab = Lab::new()?;
        let daemon = Implementation::new(program);
        let identity = Identity::new(HUB);
        let outer = |network: u8, host: u8| Ipv4Addr::new(10, 9, network, host);
        let endpoint = |network, host| Some((outer(network, host), PORT).into());
        let middle = lab.namespace("hub")?;
        set(&middle, SOLICITATIONS, "0")?;
        let (mut peers, mut spokes) = (Vec::new(), Vec::new());
        for n in SPOKES {
            let spoke = lab.namespace(&format!("spoke {n}"))?;
            set(&spoke, SOLICITATIONS, "0")?;
            let cable = format!("veth{n}");
            let at_hub = (&middle, &cable[..], outer(n, HUB));
            connect(&lab, at_hub, (&spoke, CABLE, outer(n, n)))?;
            let own = Identity::new(n);
            peers.push(own.as_peer(endpoint(n, n)));
            let to_hub = vec![identity.as_peer(endpoint(n, HUB))];
            let end = End::start(&spoke, &daemon, &own, to_hub, TUNNEL_MTU);
            spokes.push(end.context("start a spoke")?);
        }
        let hub = End::start(&middle, &daemon, &identity, peers, TUNNEL_MTU);
        Ok(Self {
            hub: hub.context("start the hub")?,
            cpus: Host::of_this_machine().cpus as f64,
            spokes,
            _lab: lab,
        })
    }

    /// The hub, then the spokes.
    pub(super) fn daemons(&self) -> impl Iterator<Item = &End> {
        std::iter::once(&self.hub).chain(&self.spokes)
    }
}
