use proptest::prelude::*;
use rustix::event::PollFlags;
use tokio::io::unix::AsyncFd;

use super::{wire::*, *};
use crate::half_open::MAX_HALF_OPEN;
use convoy_packet::{
    counters::Dropped,
    packet::{ICMPV4, ICMPV6, Packet, TCP, UDP, seal_ipv4},
    segment::{ACK, FIN, Options, RST, SYN, Tuple},
    vnet::{VNET_LEN, VnetHeader},
};

#[tokio::test]
async fn of_too_many_half_open_connections_the_oldest_end_and_a_new_one_is_accepted() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    let ends = |port| Tuple {
        local: at(B, port),
        remote: at(A, 80),
    };
    const FLOOD: u16 = 2_000;
    let mut answer = Vec::new();
    for port in 1..=FLOOD {
        wire.send(&segment(ends(port), SYN, 7, 0));
        answer = wire.receive();
        assert!(a.flows() <= MAX_HALF_OPEN + 1);
    }
    until(|| a.counters().dropped(Dropped::HalfOpen) == u64::from(FLOOD) - 256).await;
    let (_, answer) = parsed(&answer);
    assert_eq!((answer.flags, answer.destination_port), (SYN | ACK, FLOOD));
    let acknowledged = answer.sequence.wrapping_add(1);
    wire.send(&segment(ends(FLOOD), ACK, 8, acknowledged));
    let (_, from) = within(listener.accept()).await.unwrap();
    assert_eq!(from, at(B, FLOOD));
    assert_eq!(a.flows(), MAX_HALF_OPEN);
}

#[tokio::test]
async fn a_flood_of_one_peer_does_not_end_what_another_begins() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    let ends = |from: &str, port| Tuple {
        local: at(from, port),
        remote: at(A, 80),
    };
    wire.send(&segment(ends(B, 1), SYN, 7, 0));
    let answer = parsed(&wire.receive()).1;
    // 800 in a round trip of 100 ms.
    for port in 1..=800 {
        let from = format!("10.9.1.{}", port % 250 + 1);
        wire.send(&segment(ends(&from, port), SYN, 7, 0));
        wire.receive();
    }
    until(|| a.counters().dropped(Dropped::HalfOpen) == 801 - MAX_HALF_OPEN as u64).await;
    let acknowledged = answer.sequence.wrapping_add(1);
    wire.send(&segment(ends(B, 1), ACK, 8, acknowledged));
    let (_, from) = within(listener.accept()).await.unwrap();
    assert_eq!(from, at(B, 1));
}

#[tokio::test]
async fn idle_connections_of_one_peer_do_not_shrink_the_windows_of_another() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    let mut flows = Vec::new();
    for port in 1..=1_100 {
        let ends = Tuple {
            local: at("10.9.1.1", port),
            remote: at(A, 80),
        };
        wire.send(&segment(ends, SYN, 7, 0));
        let answer = parsed(&wire.receive()).1;
        wire.send(&segment(ends, ACK, 8, answer.sequence.wrapping_add(1)));
        flows.push(within(listener.accept()).await.unwrap());
    }
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let answer = wire.receive();
    let options = Options::parse(&answer[20..], parsed(&answer).1.header_len);
    assert_eq!(options.scale, Some(3));
}

/// A fragment of a datagram with 16 bytes of payload.
fn fragment(from: &str, ident: u16, is_last: bool) -> Vec<u8> {
    let datagram = [0, 9, 0, 10, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let payload = match is_last {
        false => &datagram[..],
        true => &[9; 8],
    };
    let mut fragment = packet(from, A, UDP, payload, 6);
    // Without a checksum of UDP.
    fragment[20..20 + payload.len()].copy_from_slice(payload);
    fragment[4..6].copy_from_slice(&ident.to_be_bytes());
    fragment[6..8].copy_from_slice(if is_last { &[0, 2] } else { &[0x20, 0] });
    seal_ipv4(&mut fragment);
    fragment
}

#[tokio::test]
async fn fragments_from_many_addresses_of_one_peer_displace_none_of_another() {
    let (a, wire) = scene();
    let socket = a.datagrams(at(A, 10)).await.unwrap();
    wire.send(&fragment(B, 1, false));
    for host in 1..=200 {
        wire.send(&fragment(&format!("10.9.1.{host}"), 2, false));
    }
    wire.send(&fragment(B, 1, true));
    let mut buffer = [0; 100];
    let (length, from) = within(socket.recv_from(&mut buffer)).await.unwrap();
    assert_eq!((length, from), (16, at(B, 9)));
}

#[tokio::test]
async fn a_flood_of_pings_of_one_peer_leaves_another_its_answers() {
    let (a, wire) = scene();
    let ping = |from, number: u8| packet(from, A, ICMPV4, &[8, 0, 0, 0, number, 2, 3, 4], 2);
    for number in 0..12 {
        for _ in 0..100 {
            wire.send(&ping("10.9.1.1", number));
        }
        until(|| a.counters().received == 100 * (u64::from(number) + 1)).await;
        while is_ready_within(&wire.0, PollFlags::IN, Duration::ZERO) {
            wire.receive();
        }
    }
    wire.send(&ping(B, 200));
    while wire.receive()[24] != 200 {}
}

#[tokio::test]
async fn pings_are_answered_and_closed_ports_reported() {
    let (a, wire) = scene();
    for (from, to, protocol, [request, reply]) in
        [(B, A, ICMPV4, [8, 0]), (B6, A6, ICMPV6, [128, 129])]
    {
        let echo = [request, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7];
        wire.send(&packet(from, to, protocol, &echo, 2));
        let answer = wire.receive();
        let answer = Packet::parse(VnetHeader::default(), &answer).unwrap();
        assert_eq!(answer.payload()[0], reply);
        assert_eq!(answer.payload()[4..], echo[4..]);
        assert!(convoy_packet::icmp::is_intact(&answer));
    }
    for (from, to, kind) in [(B, A, [3, 3]), (B6, A6, [1, 4])] {
        let datagram = [0, 9, 0, 10, 0, 9, 0, 0, 42];
        let question = packet(from, to, UDP, &datagram, 6);
        wire.send(&question);
        let answer = wire.receive();
        let answer = Packet::parse(VnetHeader::default(), &answer).unwrap();
        assert_eq!(answer.payload()[..2], kind);
        assert_eq!(answer.payload()[8..], question);
        assert!(convoy_packet::icmp::is_intact(&answer));
    }
    until(|| a.counters().dropped(Dropped::NobodyListens) == 2).await;
}

#[tokio::test]
async fn bytes_that_were_never_sent_cannot_be_acknowledged() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    let ends = Tuple {
        local: at(B, 5_000),
        remote: at(A, 80),
    };
    wire.send(&segment(ends, SYN, 7, 0));
    let first = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    // Its window is zero.
    wire.send(&segment(ends, ACK, 8, first));
    let (mut server, _) = within(listener.accept()).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    wire.send(&segment(ends, ACK, 8, first.wrapping_add(4)));
    until(|| a.counters().dropped(Dropped::UnsentAcknowledged) == 1).await;
    let mut open = segment(ends, ACK, 8, first)[20..].to_vec();
    open[14..18].copy_from_slice(&[1, 0, 0, 0]);
    wire.send(&packet(B, A, TCP, &open, 16));
    while !wire.receive().ends_with(b"answer") {}
}

#[tokio::test]
async fn icmp_errors_end_attempts_to_connect() {
    let (a, wire) = scene();
    for (from, to, header, kind) in [
        (
            B,
            A,
            [3, 1, 0, 0, 0, 0, 0, 0],
            io::ErrorKind::HostUnreachable,
        ),
        (
            B,
            A,
            [3, 3, 0, 0, 0, 0, 0, 0],
            io::ErrorKind::ConnectionRefused,
        ),
        (
            B6,
            A6,
            [1, 0, 0, 0, 0, 0, 0, 0],
            io::ErrorKind::HostUnreachable,
        ),
    ] {
        let attempt = a.connect(at(from, 80));
        let (attempt, ()) = tokio::join!(within(attempt), async {
            let syn = wire.receive();
            let protocol = if from == B { ICMPV4 } else { ICMPV6 };
            wire.send(&packet(
                from,
                to,
                protocol,
                &[&header[..], &syn].concat(),
                2,
            ));
        });
        assert_eq!(attempt.unwrap_err().kind(), kind);
    }
    assert_eq!(a.flows(), 0);
}

#[tokio::test]
async fn a_router_with_a_shorter_mtu_is_obeyed() {
    let (a, wire) = scene();
    let (_client, error) = segment_too_long(&a, &wire).await;
    wire.send(&packet("192.0.2.1", A, ICMPV4, &error, 2));
    until(|| a.counters().path_mtu_changes == 1).await;
    // One about a segment that is not under way is forged.
    let mut forged = error;
    forged[8 + 20 + 4] ^= 0x40;
    forged[6..8].copy_from_slice(&[2, 63]);
    wire.send(&packet("192.0.2.1", A, ICMPV4, &forged, 2));
    until(|| a.counters().received == 3).await;
    assert_eq!(a.counters().path_mtu_changes, 1);
}

/// Guesses hit a number in flight once in thousands.
#[tokio::test]
async fn another_peer_cannot_shorten_the_segments_of_a_connection_nor_end_an_attempt() {
    let (a, wire) = scene();
    let (_client, error) = segment_too_long(&a, &wire).await;
    for other in ["10.9.1.1", "203.0.113.1"] {
        wire.send(&packet(other, A, ICMPV4, &error, 2));
    }
    until(|| a.counters().received == 3).await;
    assert_eq!(a.counters().path_mtu_changes, 0);
    let attempt = a.connect(at(B, 80));
    let (attempt, ()) = tokio::join!(within(attempt), async {
        let syn = wire.receive();
        for (from, code) in [("10.9.1.1", 3), (B, 1)] {
            let refusal = [&[3, code, 0, 0, 0, 0, 0, 0], &syn[..]].concat();
            wire.send(&packet(from, A, ICMPV4, &refusal, 2));
        }
    });
    // By its own peer.
    assert_eq!(attempt.unwrap_err().kind(), io::ErrorKind::HostUnreachable);
}

/// A connection to port 80, and the message of a router that its segment under way is too long.
async fn segment_too_long(a: &Stack, wire: &Wire) -> (Stream, Vec<u8>) {
    let (client, answer) = tokio::join!(within(a.connect(at(B, 80))), async {
        let syn = parsed(&wire.receive()).1;
        let mut bytes = vec![0; 20];
        bytes[0..2].copy_from_slice(&80_u16.to_be_bytes());
        bytes[2..4].copy_from_slice(&syn.source_port.to_be_bytes());
        bytes[8..12].copy_from_slice(&syn.end().to_be_bytes());
        (bytes[12], bytes[13]) = (5 << 4, SYN | ACK);
        bytes[14..16].copy_from_slice(&[255; 2]);
        wire.send(&packet(B, A, TCP, &bytes, 16));
        parsed(&wire.receive()).1
    });
    assert_eq!(answer.flags, ACK);
    let mut client = client.unwrap();
    client.write_all(&[1; 536]).await.unwrap();
    let data = loop {
        let packet = wire.receive();
        if parsed(&packet).1.payload_len > 0 {
            break packet;
        }
    };
    (client, [&[3, 4, 0, 0, 0, 0, 2, 64], &data[..60]].concat())
}

/// A segment to port 80 from an end that scales its windows.
pub(super) fn scaled(
    flags: u8,
    window: u16,
    sequence: u32,
    acknowledged: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[2..4].copy_from_slice(&80_u16.to_be_bytes());
    bytes[0..2].copy_from_slice(&5_000_u16.to_be_bytes());
    bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
    bytes[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    (bytes[12], bytes[13]) = (6 << 4, flags);
    bytes[14..16].copy_from_slice(&window.to_be_bytes());
    // A window scale, which only a SYN has.
    bytes[20..24].copy_from_slice(if flags == SYN { &[3, 3, 7, 0] } else { &[0; 4] });
    bytes.extend(payload);
    packet(B, A, TCP, &bytes, 16)
}

#[tokio::test]
async fn a_window_that_opens_after_both_ends_have_closed_is_used() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let acknowledged = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    wire.send(&scaled(ACK | FIN, 0, 1, acknowledged, &[]));
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    assert_eq!(within(stream.read(&mut [0])).await.unwrap(), 0);
    stream.write_all(&[7; 500]).await.unwrap();
    drop(stream);
    wire.send(&scaled(ACK, 256, 2, acknowledged, &[]));
    // A probe of the closed window would carry one byte, after a second.
    let data = loop {
        let segment = parsed(&wire.receive()).1;
        if segment.payload_len > 0 {
            break segment;
        }
    };
    assert_eq!(data.payload_len, 500);
}

/// A connection from port 5,000 of the wire to port 80, whose next segment from the wire has the number 1.
pub(super) async fn opened(a: &Stack, wire: &Wire) -> (Stream, u32) {
    let listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let first = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    wire.send(&scaled(ACK, 512, 1, first, &[]));
    let (stream, _) = within(listener.accept()).await.unwrap();
    (stream, first)
}

#[tokio::test]
async fn a_syn_in_an_open_connection_is_answered_so_that_an_end_that_has_forgotten_it_can_reset_it()
{
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    wire.send(&scaled(SYN, 0, 7_000_000, 0, &[]));
    let answer = parsed(&wire.receive()).1;
    assert_eq!(
        (answer.flags, answer.sequence, answer.acknowledged),
        (ACK, first, 1)
    );
    wire.send(&scaled(RST, 0, 1, 0, &[]));
    let error = within(stream.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn data_with_an_older_acknowledgement_is_received() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.write_all(b"answer").await.unwrap();
    assert_eq!(parsed(&wire.receive()).1.payload_len, 6);
    wire.send(&scaled(ACK, 512, 1, first.wrapping_add(6), &[]));
    // Sent before that, and overtaken.
    wire.send(&scaled(ACK, 512, 1, first, b"late"));
    let mut late = [0; 4];
    within(stream.read_exact(&mut late)).await.unwrap();
    assert_eq!(&late, b"late");
}

#[tokio::test]
async fn an_acknowledgement_outside_the_window_is_not_believed() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.write_all(b"answer").await.unwrap();
    assert_eq!(parsed(&wire.receive()).1.payload_len, 6);
    wire.send(&scaled(ACK, 512, 0x4000_0000, first.wrapping_add(6), &[]));
    // It goes again, as it was not acknowledged.
    let again = loop {
        let segment = parsed(&wire.receive()).1;
        if segment.payload_len > 0 {
            break segment;
        }
    };
    assert_eq!((again.sequence, again.payload_len), (first, 6));
    wire.send(&scaled(ACK, 512, 1, first.wrapping_add(6), &[]));
    drop(stream);
    let end = loop {
        let segment = parsed(&wire.receive()).1;
        if segment.flags & FIN != 0 {
            break segment;
        }
    };
    assert_eq!(end.sequence, first.wrapping_add(6));
}

#[tokio::test]
async fn what_fits_an_announced_window_is_received_whatever_its_length() {
    let (a, wire) = scene();
    let _listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let acknowledged = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    let (mut sent, mut right_edge) = (1, 0);
    while sent != right_edge {
        // No multiple of what the window is scaled by.
        let length = match right_edge {
            0 => 997,
            _ => 997.min(right_edge - sent),
        };
        let payload = vec![7; length as usize];
        wire.send(&scaled(ACK, 0, sent, acknowledged, &payload));
        sent += length;
        let answer = loop {
            let answer = parsed(&wire.receive()).1;
            if answer.acknowledged == sent {
                break answer;
            }
        };
        right_edge = right_edge.max(sent + (u32::from(answer.window) << 3));
    }
    assert!(sent > 500_000, "{sent}");
}

#[tokio::test]
async fn more_than_the_window_at_once_does_no_harm() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let acknowledged = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    const EACH: usize = 60_000;
    for index in 0..20 {
        let sequence = (1 + index * EACH) as u32;
        wire.send(&scaled(
            ACK,
            0,
            sequence,
            acknowledged,
            &[index as u8; EACH],
        ));
    }
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    let mut received = vec![0; 8 * EACH];
    within(stream.read_exact(&mut received)).await.unwrap();
    let is_right = |(index, byte): (usize, &u8)| usize::from(*byte) == index / EACH;
    assert!(received.iter().enumerate().all(is_right));
    assert_eq!(a.flows(), 1);
}

#[tokio::test]
async fn packets_for_others_or_from_nobody_or_damaged_are_counted() {
    let (a, wire) = scene();
    let ends = |local, remote| Tuple {
        local: at(local, 1),
        remote: at(remote, 2),
    };
    let mut damaged = segment(ends(B, A), SYN, 1, 0);
    damaged[24] ^= 1;
    let mut bad_header = segment(ends(B, A), SYN, 1, 0);
    bad_header[8] ^= 1;
    for (packet, reason) in [
        (segment(ends(B, "10.9.0.3"), SYN, 1, 0), Dropped::NotOurs),
        (segment(ends(B6, "ff02::1"), SYN, 1, 0), Dropped::NotOurs),
        (segment(ends("127.0.0.1", A), SYN, 1, 0), Dropped::BadSource),
        (segment(ends("224.0.0.1", A), SYN, 1, 0), Dropped::BadSource),
        (segment(ends("::", A6), SYN, 1, 0), Dropped::BadSource),
        (segment(ends(A, A), SYN, 1, 0), Dropped::BadSource),
        (damaged, Dropped::BadChecksum),
        (bad_header, Dropped::BadChecksum),
        (vec![0x45; 3], Dropped::Malformed),
        (vec![0x00; 60], Dropped::Malformed),
        (packet(B, A, 99, &[0; 8], 2), Dropped::UnknownProtocol),
    ] {
        let before = a.counters().dropped(reason);
        wire.send(&packet);
        until(|| a.counters().dropped(reason) == before + 1).await;
    }
}

/// Bytes, or a segment with any fields, some of them for the connection that exists.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let ends = (any::<bool>(), prop_oneof![Just(5_000_u16), any::<u16>()]);
    let fields = (0..64_u8, any::<u32>(), any::<u32>(), any::<u16>());
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    let header = (5..16_u8, any::<bool>());
    let segment = (ends, fields, payload, header).prop_map(
        |((is_v4, port), (flags, sequence, acknowledged, window), payload, (length, near))| {
            let (from, to) = if is_v4 { (B, A) } else { (B6, A6) };
            let mut bytes = vec![0; 20];
            bytes[0..2].copy_from_slice(&port.to_be_bytes());
            bytes[2..4].copy_from_slice(&80_u16.to_be_bytes());
            let sequence = if near { sequence % 100_000 } else { sequence };
            bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
            bytes[8..12].copy_from_slice(&acknowledged.to_be_bytes());
            bytes[12] = length << 4;
            bytes[13] = flags;
            bytes[14..16].copy_from_slice(&window.to_be_bytes());
            bytes.extend(payload);
            packet(from, to, TCP, &bytes, 16)
        },
    );
    let other = (
        any::<bool>(),
        prop_oneof![Just(UDP), Just(ICMPV4), Just(ICMPV6), any::<u8>()],
    );
    let payload = proptest::collection::vec(any::<u8>(), 8..100);
    let other = (other, payload).prop_map(|((is_v4, protocol), payload)| {
        let (from, to) = if is_v4 { (B, A) } else { (B6, A6) };
        packet(from, to, protocol, &payload, 2)
    });
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![4 => segment, 2 => other, 1 => bytes]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_packets_end_the_stack(
        packets in proptest::collection::vec((any_packet(), any::<[u8; VNET_LEN]>(), 0..4_u8), 1..60),
    ) {
        let (device, tunnels) = device_pair().unwrap();
        let a = stack(device, [A, A6], 1420);
        let wire = Wire(tunnels);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _listener = runtime.block_on(a.listen(at("0.0.0.0", 80))).unwrap();
        let _sixth = runtime.block_on(a.listen(at("::", 80))).unwrap();
        let ends = Tuple { local: at(B, 5_000), remote: at(A, 80) };
        wire.send(&segment(ends, SYN, 7, 0));
        let (_, answer) = parsed(&wire.receive());
        wire.send(&segment(ends, ACK, 8, answer.sequence.wrapping_add(1)));
        for (packet, vnet, kind) in &packets {
            // Some with a header that says anything.
            match kind {
                0 => drop(rustix::io::write(&wire.0, &[&vnet[..], packet].concat())),
                _ => wire.send(packet),
            }
        }
        let marker = [8, 0, 0, 0, 0xca, 0xfe, 0xca, 0xfe, 0xca, 0xfe, 0xca, 0xfe];
        wire.send(&packet(B, A, ICMPV4, &marker, 2));
        while !wire.receive().ends_with(&marker[4..]) {}
    }
}

/// Moves messages between two devices. With a seed, it loses, doubles and reorders some.
pub(super) async fn relay(first: OwnedFd, second: OwnedFd, seed: u64) {
    // SAFETY: each owns its descriptor, which stays open and the same.
    let [first, second] = [first, second].map(|it| unsafe { AsyncFd::register(it) }.unwrap());
    tokio::join!(
        pass(&first, &second, seed),
        pass(&second, &first, seed + u64::from(seed > 0))
    );
}

async fn pass(from: &AsyncFd<OwnedFd>, to: &AsyncFd<OwnedFd>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut buffer = vec![0; 70_000];
    let mut late: Option<Vec<u8>> = None;
    loop {
        let mut ready = from.readable().await.unwrap();
        let read = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut buffer)?));
        let Ok(Ok(length @ 1..)) = read else {
            continue;
        };
        let message = &buffer[..length];
        match rng.random_range(0..100) {
            0..3 if seed > 0 => {}
            3..6 if seed > 0 => late = Some(message.to_vec()),
            fate => {
                write(to, message).await;
                if (6..9).contains(&fate) && seed > 0 {
                    write(to, message).await;
                }
                if let Some(late) = late.take() {
                    write(to, &late).await;
                }
            }
        }
    }
}

async fn write(to: &AsyncFd<OwnedFd>, message: &[u8]) {
    loop {
        let mut ready = to.writable().await.unwrap();
        if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd, message)?)) {
            // The stack may have ended.
            return drop(written);
        }
    }
}

#[tokio::test]
async fn loss_reordering_and_duplicates_damage_nothing() {
    for (seed, address) in [(1, B), (2, B6)] {
        let (device, near) = device_pair().unwrap();
        let (far, other) = device_pair().unwrap();
        let (a, b) = (stack(device, [A, A6], 1420), stack(other, [B, B6], 1420));
        let relay = tokio::spawn(relay(near, far, seed));
        let (client, server) = within(connected(&a, &b, address)).await;
        exchange(client, server, 256 << 10).await;
        relay.abort();
    }
}
