//! Rates by two looks at all tunnels.

use std::{collections::HashMap, time::Duration};

use convoy_report::{PeerStatus, Rate, Status};

/// Adds the rates of all tunnels and peers that were there `time` earlier.
pub fn add(statuses: &mut [Status], earlier: &[Status], time: Duration) {
    let seconds = time.as_secs_f64();
    let earlier: HashMap<_, _> = earlier.iter().map(|it| (it.name.as_str(), it)).collect();
    for status in statuses {
        if let Some(earlier) = earlier.get(status.name.as_str()) {
            add_to(status, earlier, seconds);
        }
    }
}

fn add_to(status: &mut Status, earlier: &Status, seconds: f64) {
    if let (Some(now), Some(then)) = (&status.stats, &earlier.stats) {
        let between = now.since(then);
        status.rate = Rate::of(between.inbound.bytes, between.outbound.bytes, seconds);
    }
    add_to_peers(&mut status.peers, &earlier.peers, seconds);
    if let (Some(via), Some(earlier)) = (&mut status.via, &earlier.via) {
        add_to_peers(&mut via.peers, &earlier.peers, seconds);
    }
}

fn add_to_peers(peers: &mut [PeerStatus], earlier: &[PeerStatus], seconds: f64) {
    let before = earlier.iter().map(|it| (&it.peer.public_key, &it.peer));
    let before: HashMap<_, _> = before.collect();
    for peer in peers {
        let now = &peer.peer;
        peer.rate = before.get(&now.public_key).and_then(|then| {
            let rx = now.rx_bytes.saturating_sub(then.rx_bytes);
            let tx = now.tx_bytes.saturating_sub(then.tx_bytes);
            Rate::of(rx, tx, seconds)
        });
    }
}

#[cfg(test)]
mod tests {
    use convoy_report::{Counters, Peer, Traffic};

    use super::*;

    #[test]
    fn a_rate_is_what_was_moved_between_two_looks() {
        let look = |name: &str, key: &str, bytes| Status {
            name: name.to_owned(),
            stats: Some(Counters {
                inbound: Traffic { packets: 1, bytes },
                ..Counters::default()
            }),
            peers: vec![PeerStatus {
                peer: Peer {
                    public_key: key.to_owned(),
                    tx_bytes: bytes,
                    ..Peer::default()
                },
                ..PeerStatus::default()
            }],
            ..Status::default()
        };
        let before = [look("wg0", "a", 1_000), look("wg1", "b", 0)];
        let mut after = [
            look("wg0", "a", 4_000),
            look("wg2", "b", 9),
            look("wg1", "c", 9),
        ];
        add(&mut after, &before, Duration::from_secs(2));
        let rate = |rx, tx| Rate {
            seconds: 2.0,
            rx,
            tx,
        };
        assert_eq!(after[0].rate, Some(rate(1_500, 0)));
        assert_eq!(after[0].peers[0].rate, Some(rate(0, 1_500)));
        assert_eq!((after[1].rate, after[1].peers[0].rate), (None, None));
        assert_eq!(
            (after[2].rate, after[2].peers[0].rate),
            (Some(rate(4, 0)), None)
        );
    }

    #[test]
    fn a_tunnel_that_was_started_again_has_no_rate_below_zero() {
        let look = |bytes| Status {
            stats: Some(Counters {
                inbound: Traffic { packets: 1, bytes },
                ..Counters::default()
            }),
            ..Status::default()
        };
        let mut after = [look(1)];
        add(&mut after, &[look(5)], Duration::from_secs(1));
        assert_eq!(after[0].rate.map(|rate| rate.rx), Some(0));
    }
}
