//! Tests of packets to other addresses that come out of a stack, and of their answers.

use std::future::poll_fn;

use super::{wire::*, *};
use convoy_network::with_batch;
use convoy_packet::{
    counters::Dropped,
    datagram,
    icmp::echo_ident,
    packet::{ICMPV4, ICMPV6, Packet, UDP, set_class},
    segment::{RST, SYN, Tuple},
    vnet::{GSO_UDP_L4, VNET_LEN, VnetHeader},
};

/// A target outside, and one of IPv6.
const OUTSIDE: &str = "198.51.100.7";
const OUTSIDE6: &str = "2001:db8:51::7";

#[tokio::test]
async fn without_a_gateway_packets_for_other_addresses_are_dropped() {
    let (a, wire) = scene();
    wire.send(&syn(OUTSIDE));
    until(|| a.counters().dropped(Dropped::NotOurs) == 1).await;
    let inlet = a.inlet().unwrap();
    assert!(a.inlet().is_none());
    drop(inlet);
    wire.send(&syn(OUTSIDE));
    until(|| a.counters().dropped(Dropped::NobodyListens) == 1).await;
}

#[tokio::test]
async fn a_flow_of_datagrams_keeps_their_traffic_class_both_ways() {
    let (a, wire) = scene();
    let inlet = a.inlet().unwrap();
    for (from, to) in [(B, OUTSIDE), (B6, OUTSIDE6)] {
        let datagram = [0, 9, 0, 10, 0, 9, 0, 0, 42];
        let mut question = packet(from, to, UDP, &datagram, 6);
        set_class(&mut question, 0xbb);
        wire.send(&question);
        assert_eq!(next(&inlet).await, question);
        let flow = inlet.datagrams(at(from, 9), at(to, 10)).unwrap();
        flow.connect(at(from, 9)).await.unwrap();
        wire.send(&question);
        within(flow.readable()).await.unwrap();
        with_batch(|batch| {
            flow.try_receive(batch).unwrap();
            assert_eq!(batch.trains().next().unwrap().class(), 0xbb);
        });
        flow.try_send_of_class(b"answer", 0xba).unwrap();
        let answer = wire.receive();
        let answer = Packet::parse(VnetHeader::default(), &answer).unwrap();
        assert_eq!((answer.class(), answer.protocol), (0xba, UDP));
    }
}

#[tokio::test]
async fn what_begins_a_flow_comes_out_and_what_belongs_to_none_is_reset() {
    let (a, wire) = scene();
    let inlet = a.inlet().unwrap();
    // A listener on any address of the stack is none for other addresses.
    let _listener = a.listen(at("0.0.0.0", 80)).await.unwrap();
    let _bound = a.datagrams(at("0.0.0.0", 80)).await.unwrap();
    let echo = |request| [request, 0, 0, 0, 1, 2, 3, 4];
    let datagram = [0, 9, 0, 80, 0, 9, 0, 0, 42];
    for sent in [
        syn(OUTSIDE),
        packet(B, OUTSIDE, UDP, &datagram, 6),
        packet(B6, OUTSIDE6, UDP, &datagram, 6),
        packet(B, OUTSIDE, ICMPV4, &echo(8), 2),
        packet(B6, OUTSIDE6, ICMPV6, &echo(128), 2),
        packet(B, OUTSIDE, 132, &[0; 20], 0),
    ] {
        wire.send(&sent);
        assert_eq!(next(&inlet).await, sent);
    }
    for target in ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.7"] {
        wire.send(&syn(target));
    }
    until(|| a.counters().dropped(Dropped::NotOurs) == 4).await;
    wire.send(&segment(ends(OUTSIDE), convoy_packet::segment::ACK, 7, 9));
    let (_, answer) = parsed(&wire.receive());
    assert_eq!((answer.flags, answer.sequence), (RST, 9));
}

#[tokio::test]
async fn fragments_come_out_as_one_packet_and_super_packets_as_datagrams() {
    let (a, wire) = scene();
    let inlet = a.inlet().unwrap();
    let mut echo = vec![7; 1_000];
    echo[..8].copy_from_slice(&[8, 0, 0, 0, 1, 2, 3, 4]);
    let whole = packet(B, OUTSIDE, ICMPV4, &echo, 2);
    for (offset, part) in [(0, &whole[20..620]), (600, &whole[620..])] {
        let mut fragment = packet(B, OUTSIDE, ICMPV4, part, 2);
        fragment[20..].copy_from_slice(part);
        let field = (offset / 8) as u16 | u16::from(offset == 0) << 13;
        fragment[6..8].copy_from_slice(&field.to_be_bytes());
        convoy_packet::packet::seal_ipv4(&mut fragment);
        wire.send(&fragment);
    }
    let came = next(&inlet).await;
    let came = Packet::parse(VnetHeader::default(), &came).unwrap();
    assert_eq!(echo_ident(&came), Some(0x0102));
    assert_eq!(came.payload(), &whole[20..]);
    let mut joined = vec![0, 9, 0, 80, 0, 38, 0, 0];
    joined.extend([1; 10].iter().chain(&[2; 10]).chain(&[3; 10]));
    let vnet = VnetHeader {
        gso_type: GSO_UDP_L4,
        gso_size: 10,
        ..VnetHeader::default()
    };
    let joined = packet(B6, OUTSIDE6, UDP, &joined, 6);
    let message = [&vnet.to_bytes()[..], &joined].concat();
    rustix::io::write(&wire.0, &message).unwrap();
    for value in 1..=3 {
        let (vnet, came) = next_message(&inlet).await;
        let came = Packet::parse(vnet, &came).unwrap();
        let received = datagram::parse(&came).unwrap();
        assert_eq!(received.payload, [value; 10]);
        assert_eq!((received.from, received.to), (at(B6, 9), at(OUTSIDE6, 80)));
    }
}

#[tokio::test]
async fn datagrams_of_a_flow_reach_it_and_leave_from_its_target() {
    let (a, wire) = scene();
    let inlet = a.inlet().unwrap();
    for (peer, target) in [(B, OUTSIDE), (B6, OUTSIDE6)] {
        let flow = inlet.datagrams(at(peer, 9), at(target, 80)).unwrap();
        let second = inlet.datagrams(at(peer, 9), at(target, 80)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        wire.send(&packet(
            peer,
            target,
            UDP,
            &[0, 9, 0, 80, 0, 9, 0, 0, 42],
            6,
        ));
        let mut buffer = [0; 10];
        let (length, from) = within(flow.recv_from(&mut buffer)).await.unwrap();
        assert_eq!((&buffer[..length], from), (&[42][..], at(peer, 9)));
        flow.try_send(b"answer").unwrap();
        let answer = wire.receive();
        let answer = Packet::parse(VnetHeader::default(), &answer).unwrap();
        assert_eq!(
            (answer.source, answer.destination),
            (at(target, 0).ip(), at(peer, 0).ip())
        );
        assert_eq!(answer.payload()[..4], [0, 80, 0, 9]);
        assert_eq!(&answer.payload()[8..], b"answer");
        // Another port of the peer is another flow, and so is the same one once this has ended.
        let other = packet(peer, target, UDP, &[0, 10, 0, 80, 0, 9, 0, 0, 42], 6);
        wire.send(&other);
        assert_eq!(next(&inlet).await, other);
        drop(flow);
        let same = packet(peer, target, UDP, &[0, 9, 0, 80, 0, 9, 0, 0, 42], 6);
        wire.send(&same);
        assert_eq!(next(&inlet).await, same);
    }
}

#[tokio::test]
async fn what_the_gateway_does_not_read_is_bounded_and_drops_are_counted() {
    let (a, wire) = scene();
    let inlet = a.inlet().unwrap();
    for _ in 0..1_100 {
        wire.send(&syn(OUTSIDE));
    }
    until(|| a.counters().dropped(Dropped::QueueFull) == 280).await;
    // One peer leaves a fifth to others.
    for _ in 0..820 {
        next(&inlet).await;
    }
    drop(a);
    let over = within(poll_fn(|context| inlet.poll_readable(context)));
    assert_eq!(over.await.unwrap_err().kind(), io::ErrorKind::NetworkDown);
}

#[tokio::test]
async fn long_packets_leave_in_fragments() {
    let (a, wire) = scene();
    let (device, tunnels) = device_pair().unwrap();
    let b = stack(device, [B, B6], 1420);
    let inlet = a.inlet().unwrap();
    let echo = vec![0; 4_000];
    for (from, to, protocol) in [(OUTSIDE, B, ICMPV4), (OUTSIDE6, B6, ICMPV6)] {
        let mut long = echo.clone();
        long[0] = if protocol == ICMPV4 { 8 } else { 128 };
        let whole = packet(from, to, protocol, &long, 2);
        inlet.write(&whole);
        for _ in 0..3 {
            let fragment = wire.receive();
            assert!(fragment.len() <= 1420);
            let message = [&[0; VNET_LEN], &fragment[..]].concat();
            rustix::io::write(&tunnels, &message).unwrap();
        }
    }
    // They were put together again.
    until(|| b.counters().reassembled == 2).await;
    until(|| b.counters().sent == 2).await;
}

fn ends(target: &str) -> Tuple {
    Tuple {
        local: at(B, 9),
        remote: at(target, 80),
    }
}

fn syn(target: &str) -> Vec<u8> {
    segment(ends(target), SYN, 7, 0)
}

/// The next packet that comes out.
async fn next(inlet: &Inlet) -> Vec<u8> {
    next_message(inlet).await.1
}

async fn next_message(inlet: &Inlet) -> (VnetHeader, Vec<u8>) {
    let ready = within(poll_fn(|context| inlet.poll_readable(context)));
    ready.await.unwrap();
    let mut buffer = vec![0; 70_000];
    let (vnet, length) = inlet.read(&mut buffer).unwrap();
    buffer.truncate(length);
    (vnet, buffer)
}
