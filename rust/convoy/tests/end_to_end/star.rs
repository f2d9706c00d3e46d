//! A hub and its spokes.
//!
//! ```text
//!   spoke 2                    hub 1                     spoke 3
//!   10.8.0.2 fd08::2 ═══ 10.8.0.1 fd08::1 ═════════ 10.8.0.3 fd08::3
//!   10.9.2.2 ── veth ── 10.9.2.1  10.9.3.1 ── veth ──── 10.9.3.3
//!                            10.9.4.1
//!                               │ veth
//!                            10.9.4.4
//!                        10.8.0.4 fd08::4
//!                             spoke 4
//! ```
//!
//! The spokes' only peer is the hub, through which they route all of 10.8.0.0/24 and fd08::/64.

use convoy_lab::{
    Lab, Namespace, Turn,
    wireguard::{End, Identity},
};

use crate::{pairing::Program, scene::lab_with, traffic::ping};

/// A hub with several peers, each on its own veth, and a lock that keeps other tests from running.
pub(crate) struct Star {
    pub(crate) hub: End,
    pub(crate) spokes: Vec<End>,
    _lab: Lab,
    _turn: Turn,
}

impl Star {
    /// All spokes have contacted the hub. `None` if the machine cannot provide them; the caller then
    /// skips its test.
    pub(crate) fn new(hub: Program, spokes: &[Program]) -> Option<Self> {
        let programs: Vec<_> = spokes.iter().copied().chain([hub]).collect();
        let (turn, lab) = lab_with(&programs, &["wg", "ping"])?;
        let middle = lab.namespace("hub").unwrap();
        let identities: Vec<_> = (2..).take(spokes.len()).map(Identity::new).collect();
        let hub_identity = Identity::new(1);
        let peers = identities.iter().map(|i| i.as_peer(None)).collect();
        let hub = End::start(&middle, &hub.implementation(), &hub_identity, peers, 1_420).unwrap();
        let spokes = identities.iter().zip(spokes);
        let spokes: Vec<_> = spokes
            .map(|(identity, program)| spoke(&lab, &middle, &hub_identity, identity, *program))
            .collect();
        // The hub learns a spoke's endpoint from its first datagram.
        spokes.iter().for_each(|spoke| ping(spoke, hub.inner_v4()));
        Some(Self {
            hub,
            spokes,
            _lab: lab,
            _turn: turn,
        })
    }
}

fn spoke(
    lab: &Lab,
    middle: &Namespace,
    hub: &Identity,
    identity: &Identity,
    program: Program,
) -> End {
    let n = identity.number;
    let namespace = lab.namespace(&format!("spoke {n}")).unwrap();
    let (inside, outside) = (format!("10.9.{n}.1/24"), format!("10.9.{n}.{n}/24"));
    let (cable, near, far) = (format!("veth{n}"), [&*inside], [&*outside]);
    lab.veth(middle, &cable, &near, &namespace, "veth0", &far, 1_500)
        .unwrap();
    let mut to_hub = hub.as_peer(Some(([10, 9, n, 1], 51_820).into()));
    to_hub.allowed_ips = vec!["10.8.0.0/24".to_owned(), "fd08::/64".to_owned()];
    let implementation = program.implementation();
    End::start(&namespace, &implementation, identity, vec![to_hub], 1_420).unwrap()
}
