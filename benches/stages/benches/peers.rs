//! Cost of a packet in the state machine with 1, 100 and 10,000 peers: all but one idle, or all busy in
//! turn.

use convoy_proto::{Node, Staging};
use convoy_stages::{Host, NOW, Nowhere, Packet, measured, receive, sealed, shake_hands};
use divan::{Bencher, counter::ItemsCount};

use crate::{each, each_of};

const HUB: Host = Host(0);
const PEERS: [u32; 3] = [1, 100, 10_000];
const LEN: usize = 1420;

#[divan::bench(args = PEERS)]
fn outbound_to_the_only_busy_peer(bencher: Bencher<'_, '_>, peers: u32) {
    let (mut hub, _, busy) = one_busy(peers);
    let mut packet = Packet::new(busy.inner(), LEN);
    let mut staging = Staging::default();
    each(bencher, ItemsCount::new(1u32), || {
        hub.handle_outbound(&mut Some(&mut packet), NOW, &mut staging, &mut Nowhere)
    });
}

#[divan::bench(args = PEERS)]
fn inbound_from_the_only_busy_peer(bencher: Bencher<'_, '_>, peers: u32) {
    let (mut hub, mut spoke, busy) = one_busy(peers);
    let mut packet = Packet::between(busy.inner(), HUB.inner(), LEN);
    let input = || sealed(&mut spoke, &mut packet);
    each_of(bencher, ItemsCount::new(1u32), input, |datagram| {
        receive(&mut hub, datagram, busy, NOW)
    });
}

#[divan::bench(args = PEERS, sample_count = 20, sample_size = 20_000)]
fn outbound_to_all_peers_in_turn(bencher: Bencher<'_, '_>, peers: u32) {
    let hosts = (1..=peers).map(Host);
    let mut hub = HUB.node(hosts.clone());
    let spokes = hosts.clone().map(|host| (host, host.node([HUB])));
    shake_hands((HUB, &mut hub), &mut spokes.collect::<Vec<_>>());
    let mut packets: Vec<_> = hosts.map(|host| Packet::new(host.inner(), LEN)).collect();
    let mut turn = 0;
    let mut staging = Staging::default();
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        turn = (turn + 1) % packets.len();
        let mut packet = Some(&mut packets[turn]);
        measured(|| hub.handle_outbound(&mut packet, NOW, &mut staging, &mut Nowhere));
    });
}

/// A hub with this many peers and a session with one of them.
fn one_busy(peers: u32) -> (Node, Node, Host) {
    let busy = Host(peers / 2 + 1);
    let mut hub = HUB.node((1..=peers).map(Host));
    let mut spokes = [(busy, busy.node([HUB]))];
    shake_hands((HUB, &mut hub), &mut spokes);
    let [(_, spoke)] = spokes;
    (hub, spoke, busy)
}
