//! Datagrams that are too long for a part of their way.

use std::net::IpAddr;

use convoy_packet::icmp::{Unreachable, write_unreachable};
use convoy_proto::counters::DropReason;

use crate::world::World;

#[test]
fn a_narrow_way_to_the_first_hop_shortens_packets_of_the_tunnel_inside() {
    let mut world = World::connected(true);
    let (first, now) = (world.first_address, world.now);
    world.hop.node().handle_too_big(first, 1400, now);
    // The first only finds out.
    for _ in 0..2 {
        world.client_sends(&[7; 1300]);
        world.settle();
    }
    assert!(world.arrived().0.is_empty());
    let told = world.client.node.poll_reply().expect("an ICMP error");
    assert_eq!(told[20..22], [3, 4]);
    let mtu = u16::from_be_bytes([told[26], told[27]]);
    world.client_sends(&vec![7; usize::from(mtu) - 20]);
    world.settle();
    assert_eq!(world.arrived().0.len(), 1);
}

#[test]
fn an_error_from_the_way_between_the_hops_is_believed_if_it_quotes_what_was_sent() {
    let mut world = World::connected(true);
    let quoted = lost_datagram(&mut world);
    let router = IpAddr::from([203, 0, 113, 1]);
    let error = |quoted: &[u8]| {
        let mut error = vec![0; 576];
        let ends = (router, IpAddr::from([10, 9, 0, 1]));
        let length = write_unreachable(&mut error, Unreachable::TooBig(1280), ends, quoted);
        error.truncate(length);
        error
    };
    // A stranger knows the addresses and ports, but not the index.
    let mut forged = quoted.clone();
    forged[20 + 8 + 4] ^= 1;
    for (quoted, is_believed) in [(forged, false), (quoted, true)] {
        let now = world.now;
        world.first.send(&error(&quoted), now);
        world.settle();
        world.client_sends(&[8; 1300]);
        world.settle();
        assert_eq!(world.arrived().0.is_empty(), is_believed);
        assert_eq!(world.client.node.poll_reply().is_some(), is_believed);
        assert_eq!(
            world.hop_drops(DropReason::InboundViaForeign),
            1,
            "the forged one"
        );
        world.second.delivered.clear();
    }
}

/// A packet of the outer tunnel that the first hop has not passed on.
fn lost_datagram(world: &mut World) -> Vec<u8> {
    world.client_sends(&[8; 1300]);
    world.deliver_to_first();
    world.first.delivered.pop().expect("a packet")
}

#[test]
fn an_error_over_ipv6_is_believed_as_well() {
    let mut world = World::connected(false);
    let quoted = lost_datagram(&mut world);
    let router = "2001:db8:9::1".parse().expect("an address");
    let own = "fd00:9::1".parse().expect("an address");
    let mut error = vec![0; 1280];
    let too_big = Unreachable::TooBig(1280);
    let length = write_unreachable(&mut error, too_big, (router, own), &quoted);
    world.first.send(&error[..length], world.now);
    world.settle();
    assert_eq!(world.hop_drops(DropReason::InboundViaForeign), 0);
    world.client_sends(&[8; 1300]);
    world.settle();
    assert!(world.arrived().0.is_empty());
    let told = world.client.node.poll_reply().expect("an ICMP error");
    // Beside the headers of IPv6, UDP and a data message.
    let fits = u16::from_be_bytes([told[26], told[27]]);
    assert_eq!(fits, 1280 - 40 - 8 - 32);
    world.client_sends(&vec![8; usize::from(fits) - 20]);
    world.deliver_to_first();
    let packet = world.first.delivered.pop().expect("a packet");
    assert!(packet.len() <= 1280, "{}", packet.len());
}

#[test]
fn an_error_about_a_datagram_that_was_no_longer_than_it_says_shortens_nothing() {
    for (is_ipv4, router, own) in [
        (true, "203.0.113.1", "10.9.0.1"),
        (false, "2001:db8:9::1", "fd00:9::1"),
    ] {
        let mut world = World::connected(is_ipv4);
        world.client_sends(&[8; 100]);
        world.deliver_to_first();
        let quoted = world.first.delivered.pop().expect("a packet");
        let [router, own] = [router, own].map(|it| it.parse().expect("an address"));
        let mut error = vec![0; 1280];
        let length = write_unreachable(
            &mut error,
            Unreachable::TooBig(1280),
            (router, own),
            &quoted,
        );
        world.first.send(&error[..length], world.now);
        world.settle();
        assert_eq!(world.hop_drops(DropReason::InboundViaForeign), 1);
        world.client_sends(&[9; 1100]);
        world.settle();
        assert_eq!(world.arrived().0, [[9; 1100]], "{router}");
    }
}
