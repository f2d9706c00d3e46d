//! Datagrams of the outer tunnel that a route leads back into the interface.

use convoy_proto::counters::DropReason;

use crate::{
    common::{Burst, TestPacket, allow},
    world::{World, udp},
};

#[test]
fn datagrams_of_the_outer_tunnel_do_not_come_back_into_it() {
    let mut world = World::new(true);
    let mut everything = world.second.as_peer();
    everything.update_only = true;
    everything.allowed_ips = vec![allow([0; 4].into(), 0)];
    world.client.set_peer(everything, world.now);
    // An initiation, then data.
    for dropped in 0..2 {
        world.client_sends(b"out");
        let mut burst = Burst(Default::default());
        world.send_packets(&mut burst);
        world.leave();
        let sent = std::mem::take(&mut world.wire);
        assert_eq!(sent.len(), 1);
        let looped = sent
            .iter()
            .map(|it| TestPacket::new(&from_host(&world, it)));
        world.send_packets(&mut Burst(looped.collect()));
        assert!(world.wire.is_empty(), "it has left once more");
        assert_eq!(world.hop_drops(DropReason::OutboundLoop), dropped + 1);
        world.wire = sent;
        world.settle();
    }
    assert_eq!(world.arrived().0.len(), 2);
    // Another program's tunnel to the same server, and other datagrams.
    let others = [&b"\x04\0\0\0\x01\x02\x03\x04, of others"[..], b"anything"];
    let others = others.map(|it| TestPacket::new(&from_host(&world, it)));
    world.send_packets(&mut Burst(others.into()));
    assert_eq!(world.wire.len(), 2);
    assert_eq!(world.hop_drops(DropReason::OutboundLoop), 2);
}

fn from_host(world: &World, datagram: &[u8]) -> Vec<u8> {
    let to = world.first_address;
    udp([192, 0, 2, 1].into(), 51_820, to.ip(), to.port(), datagram)
}
