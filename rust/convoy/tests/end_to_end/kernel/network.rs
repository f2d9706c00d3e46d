//! A bad network between Convoy and the kernel: netem on both directions of the guest's link.

use std::{sync::atomic::AtomicU64, thread};

use super::pair::{Pair, Role, for_each_role, right_v4, right_v6};
use crate::traffic::{tcp_between, udp_echo_between};

const BYTES: u64 = 4_000_000;

for_each_role! {
    fn one_percent_of_loss(role: Role) {
        traffic_survives(role, "loss 1%");
    }

    fn a_delay_of_100_ms(role: Role) {
        traffic_survives(role, "delay 100ms");
    }

    fn reordering(role: Role) {
        traffic_survives(role, "delay 10ms reorder 25% 50%");
    }

    fn loss_duplicates_and_jitter(role: Role) {
        traffic_survives(role, "delay 20ms 10ms loss 0.5% duplicate 2%");
    }
}

/// Impairs both directions of the guest's link; arriving packets pass `ifb0`.
fn impair(pair: &Pair, netem: &str) {
    pair.shell(&format!(
        "modprobe ifb numifbs=0; ip link add ifb0 type ifb; ip link set ifb0 up
         tc qdisc add dev outside root netem limit 10000 {netem}
         tc qdisc add dev outside handle ffff: ingress
         tc filter add dev outside parent ffff: matchall action mirred egress redirect dev ifb0
         tc qdisc add dev ifb0 root netem limit 10000 {netem}"
    ));
}

/// TCP in both directions at once, then datagrams of all sizes, arrive intact.
fn traffic_survives(role: Role, netem: &str) {
    let Some(pair) = Pair::new(role) else { return };
    impair(&pair, netem);
    // The handshake may be lost, too.
    pair.is_answered();
    let (left, right) = (&pair.left.namespace, &pair.right);
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| tcp_between(left, right, right_v4(), BYTES, &up));
        scope.spawn(|| tcp_between(right, left, pair.left.inner_v6(), BYTES, &down));
    });
    udp_echo_between(left, right, right_v6(), 200, 1_372);
    is_impaired(&pair, netem);
}

/// Requires that both directions passed netem, and that it lost some of them if it should.
fn is_impaired(pair: &Pair, netem: &str) {
    for link in ["outside", "ifb0"] {
        let shown = pair.shell(&format!("tc -s qdisc show dev {link} root"));
        let count = |name: &str| {
            let after = shown.split(name).nth(1).unwrap().trim_start();
            let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            digits.parse::<u64>().unwrap()
        };
        assert!(count("bytes ") > 1_000, "{shown}");
        assert_eq!(count("dropped ") > 0, netem.contains("loss"), "{shown}");
    }
}
