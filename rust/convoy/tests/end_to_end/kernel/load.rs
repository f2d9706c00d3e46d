//! Handshakes while one end is under load and asks for cookies: the other returns them.

use std::{
    net::SocketAddrV4,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use convoy_lab::{
    PacketSocket, eventually,
    flood::{Datagrams, Generator, capture},
};

use super::{
    guest::PATIENCE,
    pair::{Pair, Role},
};
use crate::{
    scene::{convoy, output_of},
    stats::Stats,
    traffic::SetOnDrop,
};

/// Initiations per second, each of which costs the guest a Diffie-Hellman exchange until it is under load.
const RATE: f64 = 5_000.0;
/// Rules that count the cookie replies between the ends (message type 3), and the initiations with a MAC2.
const COUNT: &str = "table ip cookies {
    chain tally {
        @th,64,8 3 ip saddr 10.9.0.2 ip daddr 10.9.0.1 counter comment \"to Convoy\"
        @th,64,8 3 ip saddr 10.9.0.1 ip daddr 10.9.0.2 counter comment \"to the kernel\"
        @th,64,8 1 @th,1120,128 != 0 ip saddr 10.9.0.2 counter comment \"returned by the kernel\"
        @th,64,8 1 @th,1120,128 != 0 ip saddr 10.9.0.1 counter comment \"returned by Convoy\"; }
    chain in { type filter hook input priority 0; iifname outside udp sport 51820 jump tally; }
    chain out { type filter hook output priority 0; oifname outside udp sport 51820 jump tally; }; }";

#[test]
#[ignore = "make interop-kernel"]
fn convoy_returns_the_cookie_of_a_loaded_kernel() {
    let Some(mut pair) = Pair::new(Role::ConvoyToKernel) else {
        return;
    };
    pair.shell("ip route add 198.18.0.0/16 via 10.9.0.1");
    let guest = "10.9.0.2:51820".parse().unwrap();
    let flood = captured_initiation(&pair, guest);
    under_flood(&mut pair, guest, &flood, |pair| {
        // A new process has no session, and no cookie.
        pair.left.replace_daemon(&convoy()).unwrap();
        output_of(
            &pair.left.namespace,
            "ip",
            &["route", "add", "10.7.0.0/24", "dev", "wg0"],
        );
        pair.is_answered();
        counted(pair, "to Convoy") > 0 && counted(pair, "returned by Convoy") > 0
    });
}

#[test]
#[ignore = "make interop-kernel"]
fn the_kernel_returns_the_cookie_of_a_loaded_convoy() {
    let Some(mut pair) = Pair::new(Role::KernelToConvoy) else {
        return;
    };
    let own = "10.9.0.1:51820".parse().unwrap();
    let flood = captured_initiation(&pair, own);
    under_flood(&mut pair, own, &flood, |pair| {
        pair.guest_forgets_sessions();
        pair.is_answered();
        counted(pair, "to the kernel") > 0 && counted(pair, "returned by the kernel") > 0
    });
    assert!(Stats::of(&pair.left).cookies_sent > 0);
}

/// Captures the initiation of a handshake for replay: its MAC1 is right.
fn captured_initiation(pair: &Pair, to: SocketAddrV4) -> Datagrams {
    let wire = PacketSocket::hearing(&pair.left.namespace, "outside").unwrap();
    pair.begin();
    let initiation = capture(&wire, to, 1, 1, PATIENCE).unwrap();
    assert_eq!(initiation.len(), 1, "no initiation to {to}");
    Datagrams::replayed(initiation)
}

/// Floods `target` from many addresses until `succeeds`.
fn under_flood(
    pair: &mut Pair,
    target: SocketAddrV4,
    flood: &Datagrams,
    succeeds: impl Fn(&mut Pair) -> bool,
) {
    output_of(&pair.left.namespace, "nft", &[COUNT]);
    let mut generator = Generator::new(&pair.left.namespace, None, target).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&done);
        scope.spawn(|| generator.run(flood, RATE, &done).unwrap());
        let succeeded = eventually(PATIENCE, || succeeds(pair).then_some(()));
        let shown = output_of(
            &pair.left.namespace,
            "nft",
            &["list", "table", "ip", "cookies"],
        );
        assert!(succeeded.is_some(), "{shown}");
        done.store(true, Ordering::Relaxed);
    });
}

/// Returns the number of datagrams that a rule of [`COUNT`] has seen.
fn counted(pair: &Pair, comment: &str) -> u32 {
    let shown = output_of(
        &pair.left.namespace,
        "nft",
        &["list", "table", "ip", "cookies"],
    );
    let line = shown.lines().find(|line| line.contains(comment)).unwrap();
    let count = line.split("packets ").nth(1).unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}
