//! Three peers of one hub, which talk to each other through it.
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
//! The spokes know the hub only, as the way to all of 10.8.0.0/24 and fd08::/64; the hub's kernel
//! forwards what comes out of its tunnel back into it.

use std::{fs, sync::atomic::AtomicU64, thread};

use convoy_lab::{
    Namespace,
    wireguard::{End, Identity},
};

use crate::{
    pairing::Program::{self, BoringTun, Convoy, GotaTun, NewestWireguardGo, WireguardGo},
    scene::lab_with,
    traffic::{ping, tcp, udp_echo},
};

const BYTES: u64 = 10_000_000;

#[test]
fn peers_of_convoy_talk_to_each_other_through_it() {
    spokes_talk_through_the_hub(Convoy, [Convoy, WireguardGo, Convoy]);
}

#[test]
fn convoys_talk_to_each_other_through_wireguard_go() {
    spokes_talk_through_the_hub(WireguardGo, [Convoy; 3]);
}

#[test]
#[ignore = "make interop"]
fn convoys_talk_to_each_other_through_the_newest_wireguard_go() {
    spokes_talk_through_the_hub(NewestWireguardGo, [Convoy; 3]);
}

#[test]
#[ignore = "make interop"]
fn convoy_wireguard_go_and_boringtun_talk_to_each_other_through_convoy() {
    spokes_talk_through_the_hub(Convoy, [Convoy, NewestWireguardGo, BoringTun]);
}

#[test]
#[ignore = "make interop"]
fn gotatun_boringtun_and_convoy_talk_to_each_other_through_convoy() {
    spokes_talk_through_the_hub(Convoy, [GotaTun, BoringTun, Convoy]);
}

fn spokes_talk_through_the_hub(hub: Program, spokes: [Program; 3]) {
    let programs: Vec<_> = spokes.into_iter().chain([hub]).collect();
    let Some((lab, _turn)) = lab_with(&programs, &["wg", "ping"]) else {
        return;
    };
    let middle = lab.namespace("hub").unwrap();
    forward(&middle);
    let identities = [2, 3, 4].map(Identity::new);
    let hub_identity = Identity::new(1);
    let peers = identities.iter().map(|i| i.as_peer(None)).collect();
    let _hub = End::start(&middle, &hub.implementation(), &hub_identity, peers, 1_420).unwrap();
    let spokes: Vec<_> = identities
        .iter()
        .zip(spokes)
        .map(|(identity, program)| {
            let n = identity.number;
            let namespace = lab.namespace(&format!("spoke {n}")).unwrap();
            let (inside, outside) = (format!("10.9.{n}.1/24"), format!("10.9.{n}.{n}/24"));
            let cable = format!("veth{n}");
            lab.veth(
                &middle,
                &cable,
                &[&inside],
                &namespace,
                "veth0",
                &[&outside],
                1_500,
            )
            .unwrap();
            let mut to_hub = hub_identity.as_peer(Some(([10, 9, n, 1], 51_820).into()));
            to_hub.allowed_ips = vec!["10.8.0.0/24".to_owned(), "fd08::/64".to_owned()];
            let implementation = program.implementation();
            End::start(&namespace, &implementation, identity, vec![to_hub], 1_420).unwrap()
        })
        .collect();
    // The hub does not know where a spoke is until the spoke has spoken.
    for spoke in &spokes {
        ping(spoke, "10.8.0.1".parse().unwrap());
    }
    for_each_two(&spokes, |a, b| {
        ping(a, b.inner_v4());
        ping(b, a.inner_v6());
        udp_echo(&a.namespace, b, b.inner_v6(), 200, 1_372);
    });
    all_at_once(&spokes);
}

fn for_each_two(ends: &[End], mut f: impl FnMut(&End, &End)) {
    for (number, a) in ends.iter().enumerate() {
        for b in &ends[number + 1..] {
            f(a, b);
        }
    }
}

/// TCP around the circle, so that each spoke sends and receives.
fn all_at_once(spokes: &[End]) {
    thread::scope(|scope| {
        for (number, from) in spokes.iter().enumerate() {
            let to = &spokes[(number + 1) % spokes.len()];
            scope.spawn(move || {
                tcp(
                    &from.namespace,
                    to,
                    to.inner_v4(),
                    BYTES,
                    &AtomicU64::new(0),
                )
            });
        }
    });
}

fn forward(namespace: &Namespace) {
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        // Below /proc/sys/net every thread sees the settings of its own namespace.
        let write = || fs::write(format!("/proc/sys/net/{switch}"), "1");
        namespace.run(write).unwrap().unwrap();
    }
}
