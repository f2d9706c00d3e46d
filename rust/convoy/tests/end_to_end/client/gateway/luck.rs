//! Bad luck: bursts, peers and targets that misbehave, and a host that is out of something.

use std::time::Duration;

use super::*;

#[test]
fn bursts_of_datagrams_keep_their_order_and_lengths() {
    let Some(place) = Place::new("", NAT) else {
        return;
    };
    // Equal ones, which are moved together, shorter ones behind them, empty ones, and fragments.
    let lengths = [900, 900, 900, 300, 900, 0, 0, 1, 1, 3_000];
    for outside in OUTSIDE {
        echo_datagrams(&place.world.net, (outside, ECHO));
        for peer in place.peers() {
            let socket = socket(peer, outside, ECHO);
            answers(peer, outside, 1);
            for _ in 0..5 {
                let burst = || lengths.iter().cycle().take(40).enumerate();
                for (number, length) in burst() {
                    socket.send(&vec![number as u8; *length]).unwrap();
                }
                for (number, length) in burst() {
                    let mut answer = [0; 4_000];
                    let received = socket.recv(&mut answer).unwrap();
                    assert_eq!(answer[..received], vec![number as u8; *length], "{number}");
                }
            }
        }
    }
    let shown = status(&place.world);
    assert_eq!(shown["nat"]["udp"]["dropped"], 0, "{shown}");
    place.down();
}
