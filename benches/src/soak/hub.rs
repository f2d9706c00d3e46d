//! Hub and spokes, with their daemons.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result};
use convoy_lab::measure::Host;
use convoy_lab::wireguard::{End, Identity, Implementation};
use convoy_lab::{Lab, Namespace};

use crate::agent::{TUNNEL_MTU, connect};
use crate::programs;

/// The numbers from which the spokes' addresses are derived.
pub(super) const SPOKES: [u8; 4] = [2, 3, 4, 5];
/// The hub's number, and the port that the spokes contact first.
const HUB: u8 = 1;
pub(super) const PORT: u16 = 51_820;
/// The interface at a spoke's end of its cable.
pub(super) const CABLE: &str = "veth0";

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
        let middle = quiet_namespace(&lab, "hub")?;
        let (mut peers, mut spokes) = (Vec::new(), Vec::new());
        for n in SPOKES {
            let spoke = quiet_namespace(&lab, &format!("spoke {n}"))?;
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

/// A namespace whose kernel sends no IPv6 router solicitations into the tunnel, where they have no route.
fn quiet_namespace(lab: &Lab, name: &str) -> Result<Namespace> {
    // Below /proc/sys/net every thread sees the settings of its own namespace.
    let setting = "/proc/sys/net/ipv6/conf/default/router_solicitations";
    let namespace = lab.namespace(name)?;
    let written = namespace.run(|| fs::write(setting, "0"))?;
    written.with_context(|| format!("write {setting}"))?;
    Ok(namespace)
}
