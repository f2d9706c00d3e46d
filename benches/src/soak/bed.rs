//! Hub and spokes, with their daemons.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use convoy_lab::wireguard::{End, Identity, Implementation};
use convoy_lab::{Lab, Namespace};

/// The numbers that the spokes' addresses are made of.
pub(super) const SPOKES: [u8; 4] = [2, 3, 4, 5];
/// The hub's number, and the port at which the spokes look for it at first.
const HUB: u8 = 1;
pub(super) const PORT: u16 = 51_820;
/// A spoke's end of its cable.
pub(super) const CABLE: &str = "veth0";
/// Ethernet, and WireGuard's usual MTU over it.
const CABLE_MTU: u32 = 1_500;
const TUNNEL_MTU: u32 = 1_420;

/// A hub and its spokes; no packet has gone through the tunnels yet.
pub(super) struct Bed {
    pub(super) hub: End,
    /// In the order of [`SPOKES`].
    pub(super) spokes: Vec<End>,
    // Last: everything inside ends with it.
    _lab: Lab,
}

impl Bed {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        ensure!(
            lab.is_root(),
            "the soak opens sockets in namespaces: run it as root"
        );
        let daemon = Implementation::new(program);
        let hub_identity = Identity::new(HUB);
        let identities = SPOKES.map(Identity::new);
        let outer = |network: u8, host: u8| ([10, 9, network, host], PORT).into();

        let middle = lab.namespace("hub")?;
        stay_silent(&middle)?;
        let mut namespaces = Vec::new();
        for n in SPOKES {
            let spoke = lab.namespace(&format!("spoke {n}"))?;
            stay_silent(&spoke)?;
            let (inside, outside) = (format!("10.9.{n}.1/24"), format!("10.9.{n}.{n}/24"));
            let at_hub = format!("veth{n}");
            lab.veth(
                &middle,
                &at_hub,
                &[&inside],
                &spoke,
                CABLE,
                &[&outside],
                CABLE_MTU,
            )?;
            namespaces.push(spoke);
        }
        let peers = identities
            .iter()
            .map(|spoke| spoke.as_peer(Some(outer(spoke.number, spoke.number))));
        let hub = End::start(&middle, &daemon, &hub_identity, peers.collect(), TUNNEL_MTU)
            .context("start the hub")?;
        let spokes = namespaces
            .iter()
            .zip(&identities)
            .map(|(namespace, identity)| {
                let to_hub = hub_identity.as_peer(Some(outer(identity.number, HUB)));
                End::start(namespace, &daemon, identity, vec![to_hub], TUNNEL_MTU)
            });
        let spokes = spokes.collect::<Result<_, _>>().context("start a spoke")?;
        Ok(Self {
            hub,
            spokes,
            _lab: lab,
        })
    }

    /// The hub, then the spokes.
    pub(super) fn ends(&self) -> impl Iterator<Item = &End> {
        std::iter::once(&self.hub).chain(&self.spokes)
    }

    /// The address at which a spoke's streams reach the hub inside the tunnel.
    pub(super) fn hub_address(&self, spoke: u8) -> IpAddr {
        if spoke.is_multiple_of(2) {
            self.hub.inner_v4()
        } else {
            self.hub.inner_v6()
        }
    }
}

/// Stops the kernel from looking for IPv6 routers in the tunnel, where such packets have no way to go.
fn stay_silent(namespace: &Namespace) -> anyhow::Result<()> {
    // Below /proc/sys/net every thread sees the settings of its own namespace.
    let setting = "/proc/sys/net/ipv6/conf/default/router_solicitations";
    let written = namespace.run(|| fs::write(setting, "0"))?;
    written.with_context(|| format!("write {setting}"))
}
