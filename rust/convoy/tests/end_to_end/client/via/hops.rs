//! Hops of every program, which know nothing of each other.

use std::sync::atomic::AtomicU64;

use super::{BEHIND_SECOND, Hops};
use crate::{pairing::Program, traffic::tcp_between};

const BYTES: u64 = 2_000_000;

#[test]
fn both_hops_may_be_convoy() {
    both_hops_may_be(Program::Convoy);
}

#[test]
#[ignore = "make interop"]
fn both_hops_may_be_the_newest_wireguard_go() {
    both_hops_may_be(Program::NewestWireguardGo);
}

#[test]
#[ignore = "make interop"]
fn both_hops_may_be_boringtun() {
    both_hops_may_be(Program::BoringTun);
}

#[test]
#[ignore = "make interop"]
fn both_hops_may_be_gotatun() {
    both_hops_may_be(Program::GotaTun);
}

fn both_hops_may_be(program: Program) {
    let Some(hops) = Hops::of(program, "") else {
        return;
    };
    hops.watch();
    hops.world.up();
    hops.reaches_behind();
    let (client, second) = (&hops.world.client, &hops.second);
    let progress = AtomicU64::new(0);
    for (from, to, address) in [
        (client, second, BEHIND_SECOND),
        (second, client, "10.7.0.2"),
    ] {
        tcp_between(from, to, address.parse().unwrap(), BYTES, &progress);
    }
    hops.nothing_was_clear("up");
    hops.world.down();
}
