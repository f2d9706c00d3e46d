//! Three peers talk to each other through one hub (a [`Star`]), whose kernel forwards packets from
//! the tunnel back into it.

use std::{fs, sync::atomic::AtomicU64, thread};

use convoy_lab::{Namespace, wireguard::End};

use crate::{
    pairing::Program::{self, BoringTun, Convoy, GotaTun, NewestWireguardGo, WireguardGo},
    star::Star,
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
    let Some(star) = Star::new(hub, &spokes) else {
        return;
    };
    forward(&star.hub.namespace);
    let spokes = &star.spokes;
    for_each_two(spokes, |a, b| {
        ping(a, b.inner_v4());
        ping(b, a.inner_v6());
        udp_echo(&a.namespace, b, b.inner_v6(), 200, 1_372);
    });
    all_at_once(spokes);
}

fn for_each_two(ends: &[End], mut f: impl FnMut(&End, &End)) {
    for (number, a) in ends.iter().enumerate() {
        for b in &ends[number + 1..] {
            f(a, b);
        }
    }
}

/// TCP from each spoke to the next, so that each one sends and receives.
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

pub(crate) fn forward(namespace: &Namespace) {
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        // /proc/sys/net shows each thread the settings of its own network namespace.
        let write = || fs::write(format!("/proc/sys/net/{switch}"), "1");
        namespace.run(write).unwrap().unwrap();
    }
}
