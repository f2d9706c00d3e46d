//! Outages, with boringtun's clock moved along: `cargo test -p convoy-proto --features mock-clock`.
//!
//! By its own timers boringtun forgets all sessions 90 seconds into a handshake.

mod common;

use std::time::Duration;

use common::*;
use mock_instant::MockClock;

const STEP: Duration = Duration::from_millis(100);

#[test]
fn an_outage_does_not_end_persistent_keepalives() {
    let mut pair = Pair::new();
    let mut update = pair.b.as_peer();
    update.endpoint = Some(pair.b.address);
    update.persistent_keepalive = Some(25);
    pair.a.set_peer(update, pair.now);
    pair.settle();
    pair.b_sends(b"up");
    pair.settle();
    assert_eq!(pair.a.delivered.len(), 1);
    pair.a_sends(b"into the void");
    pass_in_outage(&mut pair, 600 * SECOND);
    let late = pass_in_outage(&mut pair, 300 * SECOND);
    assert!(late >= 10, "{late} signs of life in five minutes");
}

#[test]
fn packets_after_an_outage_are_all_sent() {
    let mut pair = Pair::connected();
    pair.a_sends(b"into the void");
    pass_in_outage(&mut pair, 130 * SECOND);
    for _ in 0..40 {
        advance(&mut pair, SECOND);
        pair.a_sends(b"anyone?");
        pair.settle();
    }
    assert_eq!(pair.b.delivered.len(), 40);
}

/// Returns how many datagrams `a` sends meanwhile, all of which are lost.
fn pass_in_outage(pair: &mut Pair, time: Duration) -> usize {
    let end = pair.now + time;
    let mut lost = 0;
    while pair.now < end {
        advance(pair, STEP);
        lost += pair.a.take_wire(pair.now).len();
    }
    lost
}

fn advance(pair: &mut Pair, time: Duration) {
    pair.now += time;
    MockClock::advance(time);
    pair.a.tick(pair.now);
}
