//! Packets from the first hop that are not for the tunnel inside.

use std::net::IpAddr;

use convoy_packet::packet::seal_ipv4;
use convoy_proto::counters::DropReason::{
    self, InboundMalformed, InboundNotWireGuard, InboundViaForeign,
};

use crate::world::{World, udp};

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

#[test]
fn what_is_not_for_the_tunnel_inside_is_dropped_and_counted() {
    let second = IpAddr::from([192, 0, 2, 3]);
    let own = |port| udp(second, 51820, OWN, port, b"\x04\0\0\0");
    let elsewhere = udp(second, 51820, [10, 9, 0, 2].into(), 50_000, b"\x04\0\0\0");
    let mut tcp = own(50_000);
    tcp[9] = 6;
    let mut short = own(50_000);
    short[25] = 200;
    let mut sealed = [tcp, short];
    sealed.iter_mut().for_each(|it| seal_ipv4(it));
    let [tcp, short] = sealed;
    for (packet, reason) in [
        (own(50_001), InboundViaForeign),
        (elsewhere, InboundViaForeign),
        (tcp, InboundViaForeign),
        (short, InboundMalformed),
    ] {
        let mut world = World::connected(true);
        assert_eq!(drops_after(&mut world, &packet, reason), 1, "{reason:?}");
        // Others behind it are not held up.
        world.second_sends(b"next");
        world.settle();
        assert_eq!(world.arrived().1, [b"next".to_vec()]);
    }
}

#[test]
fn a_datagram_that_is_not_wireguards_is_dropped_by_the_tunnel_inside() {
    let mut world = World::connected(true);
    let packet = udp([192, 0, 2, 66].into(), 53, OWN, 50_000, b"an answer");
    world.first.send(&packet, world.now);
    world.settle();
    assert_eq!(world.client.drops(InboundNotWireGuard), 1);
}

fn drops_after(world: &mut World, packet: &[u8], reason: DropReason) -> u64 {
    let now = world.now;
    world.first.send(packet, now);
    world.settle();
    assert!(world.client.delivered.is_empty());
    world.hop_drops(reason)
}
