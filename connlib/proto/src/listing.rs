//! Lists the state of the device and its peers in slices.

use std::time::{Duration, SystemTime};

use convoy_noise::Identity;

use crate::{
    config::{Prefix, RecentTraffic, Snapshot},
    node::Node,
};

/// The cost of a slice, in allowed IPs; and that of a peer.
const SLICE: usize = 512;
const PEER: usize = 8;

/// A snapshot in the making.
#[derive(Debug)]
pub struct Listing {
    /// The device, and the peers so far, whose allowed IPs only [`Listing::into_snapshot`] adds.
    pub snapshot: Snapshot,
    /// The next peer's place in the order of adding, or a smaller number.
    next: u64,
    /// The last allowed IP listed of the next peer, if the peer is listed in part.
    after: Option<Prefix>,
    /// One block per slice. A single list would move to larger memory as it grows.
    allowed_ips: Vec<Vec<Listed>>,
    now: Duration,
    wall: SystemTime,
}

/// An allowed IP of a peer in the snapshot.
#[derive(Debug)]
struct Listed {
    peer: usize,
    /// Its position in the order of adding.
    position: u64,
    prefix: Prefix,
}

impl Node {
    /// The state of the device and its peers; `now` and `wall` are the same moment by both clocks.
    ///
    /// The caller fills in port, firewall mark, its own counters and the traffic of the last seconds.
    pub fn snapshot(&mut self, now: Duration, wall: SystemTime) -> Snapshot {
        let mut listing = self.begin_snapshot(now, wall);
        while !self.snapshot_slice(&mut listing) {}
        listing.into_snapshot()
    }

    /// The same in slices: call [`Self::snapshot_slice`] until it returns true, then
    /// [`Listing::into_snapshot`], and change nothing meanwhile.
    pub fn begin_snapshot(&mut self, now: Duration, wall: SystemTime) -> Listing {
        Listing {
            snapshot: Snapshot {
                private_key: self.identity.as_deref().map(Identity::private_key),
                public_key: self.identity.as_deref().map(Identity::public_key),
                listen_port: 0,
                fwmark: 0,
                mtu: self.mtu,
                peers: Vec::with_capacity(self.peers.len()),
                directs: self.direct_statuses(now),
                relays: self.relay_statuses(),
                outer: None,
                counters: self.counters.clone(),
                recent: RecentTraffic::default(),
            },
            next: 0,
            after: None,
            allowed_ips: Vec::new(),
            now,
            wall,
        }
    }

    /// Lists some peers or, of a peer with very many allowed IPs, some of these. Returns whether all are there.
    pub fn snapshot_slice(&mut self, listing: &mut Listing) -> bool {
        let mut block = Vec::with_capacity(SLICE);
        let mut peers = 0;
        while peers * PEER + block.len() < SLICE {
            let Some((&added, &id)) = self.by_age.range(listing.next..).next() else {
                listing.allowed_ips.push(block);
                return true;
            };
            peers += 1;
            let peer = &mut self.peers[id];
            if listing.after.is_none() {
                let state = peer.snapshot(listing.now, listing.wall);
                listing.snapshot.peers.push(state);
            }
            let nth = listing.snapshot.peers.len() - 1;
            let rest = peer.allowed_ips.after(listing.after);
            block.extend(
                rest.take(SLICE - block.len())
                    .map(|(prefix, position)| Listed {
                        peer: nth,
                        position,
                        prefix,
                    }),
            );
            // Perhaps the peer has more of them.
            listing.after = (block.len() == SLICE).then(|| block[SLICE - 1].prefix);
            listing.next = added + u64::from(listing.after.is_none());
        }
        listing.allowed_ips.push(block);
        false
    }
}

impl Listing {
    /// The complete snapshot. This sorts all allowed IPs: call it on another thread than the node's.
    #[must_use]
    pub fn into_snapshot(self) -> Snapshot {
        let mut all: Vec<_> = self.allowed_ips.into_iter().flatten().collect();
        all.sort_unstable_by_key(|listed| (listed.peer, listed.position));
        let mut snapshot = self.snapshot;
        for of_peer in all.chunk_by(|a, b| a.peer == b.peer) {
            let prefixes = of_peer.iter().map(|listed| listed.prefix);
            snapshot.peers[of_peer[0].peer].allowed_ips = prefixes.collect();
        }
        snapshot
    }
}
