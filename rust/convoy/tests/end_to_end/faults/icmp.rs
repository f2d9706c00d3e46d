//! ICMP messages that anybody can forge: "the path is narrower than your datagram".

use std::net::{IpAddr, SocketAddr};

use convoy_lab::wireguard::{Tunnel, TunnelOptions, Underlay};
use etherparse::{Icmpv4Header, Icmpv4Type, Ipv4Header, Ipv6Header, UdpHeader, icmpv4};
use socket2::{Domain, Protocol, Socket, Type};

use super::{batches_sent, until};
use crate::{
    scene::{Pairing, Scene},
    stats::Stats,
};

/// The MTU that the forged messages claim, in bytes.
const CLAIMED: u16 = 1_280;

#[test]
fn a_forged_icmp_message_does_not_end_segmentation() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    assert!(batches_sent(left, right) > 0);
    forge(&scene, Underlay::V4);
    assert!(batches_sent(left, right) > 0);
    let stats = Stats::of(left);
    assert_eq!(stats.event("gso_refused_batches"), 0);
    assert_eq!(stats.lost_outbound(), 0);
}

#[test]
fn a_forged_icmpv6_message_ends_segmentation_for_seconds_only() {
    let options = TunnelOptions {
        underlay: Underlay::V6,
        ..TunnelOptions::default()
    };
    let Some(scene) = Scene::with(Pairing::ConvoyToConvoy, &options) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    assert!(batches_sent(left, right) > 0);
    forge(&scene, Underlay::V6);
    batches_sent(left, right);
    let is_refused = Stats::of(left).event("gso_refused_batches") > 0;
    assert!(is_refused, "the kernel must have believed it");
    // Otherwise the kernel would remember it for ten minutes.
    until(left, "segmentation is back", |stats| {
        let is_back = batches_sent(left, right) > 0;
        is_back && stats.number("gso_suspended_destinations") == 0
    });
    assert_eq!(Stats::of(left).lost_outbound(), 0);
}

/// Tells the left end's kernel that the tunnel's datagrams were too long for a hop.
fn forge(tunnel: &Tunnel, underlay: Underlay) {
    let (left, right) = (tunnel.left.outer(underlay), tunnel.right.outer(underlay));
    let udp = UdpHeader {
        source_port: left.port(),
        destination_port: right.port(),
        length: 1_452,
        checksum: 0,
    };
    let (domain, protocol, message) = match (left.ip(), right.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = Ipv4Header::new(1_452, 64, 17.into(), from.octets(), to.octets()).unwrap();
            let quoted = [&ip.to_bytes()[..], &udp.to_bytes()].concat();
            let reason = icmpv4::DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu: CLAIMED,
            };
            let icmp = Icmpv4Type::DestinationUnreachable(reason);
            let icmp = Icmpv4Header::with_checksum(icmp, &quoted);
            let message = [&icmp.to_bytes()[..], &quoted].concat();
            (Domain::IPV4, Protocol::ICMPV4, message)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6Header {
                payload_length: 1_452,
                next_header: 17.into(),
                hop_limit: 64,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            // The kernel fills in the checksum.
            let mut icmp = vec![2, 0, 0, 0, 0, 0];
            icmp.extend(CLAIMED.to_be_bytes());
            let message = [&icmp[..], &ip.to_bytes(), &udp.to_bytes()].concat();
            (Domain::IPV6, Protocol::ICMPV6, message)
        }
        _ => unreachable!("both ends have one family"),
    };
    let send = || {
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.send_to(&message, &SocketAddr::new(left.ip(), 0).into())
    };
    tunnel.right.namespace.run(send).unwrap().unwrap();
}
