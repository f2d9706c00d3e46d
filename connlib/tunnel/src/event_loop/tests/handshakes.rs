//! Handshakes that are asked for, and the events of followed peers.

use convoy_proto::{Outcome, config::PublicKey};
use tokio::sync::oneshot;

use super::*;
use crate::{command::Command, event_loop::commands::HANDSHAKES_PER_SLICE};

#[test]
fn handshakes_with_ten_thousand_peers_are_scheduled_in_slices() {
    const PEERS: usize = 10_000;
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let (done, scheduled) = oneshot::channel();
        let peers = vec![PublicKey([7; 32]); PEERS].into_iter();
        let mut task = event_loop.begin(Command::Handshake { peers, done }, clock::now());
        let mut slices = 0;
        while let Some(rest) = task {
            slices += 1;
            task = event_loop.go_on(rest, clock::now());
        }
        assert_eq!(slices, PEERS.div_ceil(HANDSHAKES_PER_SLICE));
        assert_eq!(scheduled.await.unwrap().len(), 0);
    });
}

#[test]
fn events_of_handshakes_wait_while_the_handle_does_not_take_them() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let (sender, mut events) = mpsc::channel(1);
        event_loop.handshake_events = sender;
        let mut update = PeerUpdate::new(Identity::new(&PrivateKey([2; 32])).public_key());
        update.endpoint = Some(([127, 0, 0, 1], 9).into());
        let peer = update.public_key;
        let update = DeviceUpdate {
            private_key: Some(Some(PrivateKey([1; 32]))),
            peers: vec![update],
            ..DeviceUpdate::default()
        };
        let now = clock::now();
        event_loop.node.apply(Planner::default().plan(update), now);
        drop(event_loop.node.follow([peer].into_iter().collect()));
        event_loop.node.handshake_now(&peer, now);
        for now in [now, now + Duration::from_secs(6)] {
            while event_loop.node.handle_timeout(now) {}
        }
        // The handle has not taken an earlier event.
        let earlier = PeerEvent::handshake(peer, Outcome::Unanswered);
        event_loop.handshake_events.try_send(earlier).unwrap();
        let mut waits = 0..100;
        while waits.next().is_some() {
            event_loop.tick();
            let wait = tokio::time::timeout(Duration::from_millis(50), event_loop.wait());
            if wait.await.is_err() {
                break;
            }
        }
        assert!(waits.next().is_some(), "the loop spins");
        assert!(event_loop.node.has_handshake_events());
        assert_eq!(events.recv().await, Some(earlier));
        event_loop.wait().await;
        event_loop.tick();
        assert_eq!(events.recv().await, Some(earlier));
        assert!(!event_loop.node.has_handshake_events());
    });
}
