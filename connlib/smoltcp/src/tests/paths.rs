//! Errors of routers about datagrams, and headers before segments.

use super::{wire::*, *};
use convoy_packet::{
    packet::{FRAGMENT, ICMPV6, IPV6_HEADER, UDP},
    segment::{ACK, SYN, Tuple},
};

/// Behind the same peer as the other stack is, and behind none.
const ROUTERS: [&str; 2] = [B6, "fd0a::1"];

/// The error of a router that its next link takes packets of `mtu` bytes, about a packet.
fn too_big(router: &str, mtu: u32, packet_sent: &[u8]) -> Vec<u8> {
    let quoted = &packet_sent[..packet_sent.len().min(1_232)];
    let message = [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), quoted].concat();
    packet(router, A6, ICMPV6, &message, 2)
}

/// Lengths of the packets that carry one datagram, which are fragments unless it is alone.
fn lengths(wire: &Wire, count: usize) -> Vec<usize> {
    let packets = (0..count).map(|_| wire.receive());
    let lengths = packets.map(|packet| {
        assert_eq!(packet[6], if count > 1 { FRAGMENT } else { UDP });
        packet.len()
    });
    lengths.collect()
}

#[tokio::test]
async fn datagrams_over_ipv6_are_cut_as_a_router_on_their_way_wants_it() {
    let (a, wire) = scene();
    let socket = a.datagrams(at(A6, 7)).await.unwrap();
    let send = async |length| socket.send_to(&vec![0; length], at(B6, 9)).await.unwrap();
    send(1_352).await;
    let first = wire.receive();
    assert_eq!(first.len(), 1_400);
    // Not on the way, not ours, of another protocol.
    let mut of_others = first.clone();
    of_others[40] ^= 1;
    let mut of_tcp = first.clone();
    of_tcp[6] = 6;
    wire.send(&too_big(ROUTERS[1], 1_300, &first));
    for packet in [&of_others, &of_tcp] {
        wire.send(&too_big(ROUTERS[0], 1_300, packet));
    }
    until(|| a.counters().received == 3).await;
    send(1_352).await;
    assert_eq!(lengths(&wire, 1), [1_400]);
    wire.send(&too_big(ROUTERS[0], 1_300, &first));
    until(|| a.counters().path_mtu_changes == 1).await;
    send(1_352).await;
    let fragments = lengths(&wire, 2);
    assert!(fragments.iter().all(|it| *it <= 1_300), "{fragments:?}");
    send(1_252).await;
    assert_eq!(lengths(&wire, 1), [1_300]);
    // A fragment is quoted, and the link is said to be narrower than any may be.
    send(3_000).await;
    let fragments: Vec<_> = (0..3).map(|_| wire.receive()).collect();
    wire.send(&too_big(ROUTERS[0], 100, &fragments[0]));
    until(|| a.counters().path_mtu_changes == 2).await;
    send(1_252).await;
    let fragments = lengths(&wire, 2);
    assert!(fragments.iter().all(|it| *it <= 1_280), "{fragments:?}");
    // The way to others is as wide as before.
    socket.send_to(&[0; 1_352], at("fd09::3", 9)).await.unwrap();
    assert_eq!(lengths(&wire, 1), [1_400]);
}

#[tokio::test]
async fn a_connection_is_served_behind_extension_headers() {
    let (a, wire) = scene();
    let listener = a.listen(at(A6, 80)).await.unwrap();
    let ends = Tuple {
        local: at(B6, 1),
        remote: at(A6, 80),
    };
    wire.send(&behind_options(&segment(ends, SYN, 7, 0)));
    let answer = parsed(&wire.receive()).1;
    assert_eq!(answer.flags, SYN | ACK);
    let acknowledged = answer.sequence.wrapping_add(1);
    wire.send(&behind_options(&segment(ends, ACK, 8, acknowledged)));
    let (_, from) = within(listener.accept()).await.unwrap();
    assert_eq!(from, at(B6, 1));
}

/// Puts destination options before the payload (RFC 8200 §4.6).
fn behind_options(packet: &[u8]) -> Vec<u8> {
    const PADDING: [u8; 8] = [6, 0, 1, 4, 0, 0, 0, 0];
    let (header, payload) = packet.split_at(IPV6_HEADER);
    let mut packet = [header, &PADDING, payload].concat();
    packet[4..6].copy_from_slice(&((PADDING.len() + payload.len()) as u16).to_be_bytes());
    packet[6] = 60;
    packet
}
