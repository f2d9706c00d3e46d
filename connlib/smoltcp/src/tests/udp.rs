use super::{wire::*, *};
use convoy_network::{Datagrams, Host, Kernel, with_batch};
use convoy_packet::packet::{UDP, set_class};

#[tokio::test]
async fn datagrams_are_answered_and_arrive_whole_at_any_length() {
    for mtu in [1280, 1420, 65_535] {
        let (a, b) = joined(mtu);
        for (from, to) in [(A, B), (A6, B6)] {
            let (client, server) = bound(&a, &b, from, to).await;
            let to = server.local_addr().unwrap();
            for length in [0, 1, 1232, 1233, 1400, 5_000, 65_000] {
                let datagram: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                client.send_to(&datagram, to).await.unwrap();
                let mut received = vec![0; 70_000];
                let (size, from) = within(server.recv_from(&mut received)).await.unwrap();
                assert_eq!(received[..size], datagram);
                server.send_to(&datagram, from).await.unwrap();
                let (size, _) = within(client.recv_from(&mut received)).await.unwrap();
                assert_eq!(received[..size], datagram);
            }
        }
    }
}

/// In fragments where the MTU is a little less than the longest packet.
#[tokio::test]
async fn the_longest_datagrams_arrive_at_the_greatest_mtus() {
    for mtu in [65_486, 65_500, 65_535] {
        let (a, b) = joined(mtu);
        for (from, to, longest) in [(A, B, 65_507), (A6, B6, 65_487)] {
            let (client, server) = bound(&a, &b, from, to).await;
            let to = server.local_addr().unwrap();
            let datagram: Vec<u8> = (0..longest).map(|index| (index % 251) as u8).collect();
            client.send_to(&datagram, to).await.unwrap();
            let mut received = vec![0; 70_000];
            let (size, _) = within(server.recv_from(&mut received)).await.unwrap();
            assert_eq!(received[..size], datagram, "{mtu} {from}");
        }
    }
}

/// Marks of congestion, and those of what can be marked, with the DSCP of calls (EF).
#[tokio::test]
async fn datagrams_keep_their_traffic_class_whole_and_in_fragments() {
    let (a, b) = joined(1420);
    for (from, to) in [(A, B), (A6, B6)] {
        let (client, server) = bound(&a, &b, from, to).await;
        client.connect(server.local_addr().unwrap()).await.unwrap();
        for (class, length) in [(1, 9), (3, 1_200), (0, 9), (0xbb, 3_000)] {
            client.try_send_of_class(&vec![7; length], class).unwrap();
            within(server.readable()).await.unwrap();
            let arrived = with_batch(|batch| {
                server.try_receive(batch).unwrap();
                let train = batch.trains().next().unwrap();
                (train.class(), train.bytes())
            });
            assert_eq!(arrived, (class, length));
        }
    }
}

/// RFC 3168, section 5.3.
#[tokio::test]
async fn a_mark_of_congestion_on_any_fragment_is_one_of_the_datagram() {
    let (a, wire) = scene();
    let socket = a.datagrams(at(A, 10)).await.unwrap();
    for marked in 0..2 {
        for (index, flags) in [[0x20, 0], [0, 2]].into_iter().enumerate() {
            let datagram = [
                0, 9, 0, 10, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            ];
            let part = &datagram[index * 16..][..16 - index * 8];
            let mut fragment = packet(B, A, UDP, part, 6);
            // Without a checksum of UDP.
            fragment[20..].copy_from_slice(part);
            fragment[6..8].copy_from_slice(&flags);
            set_class(&mut fragment, if index == marked { 3 } else { 2 });
            wire.send(&fragment);
        }
        within(socket.readable()).await.unwrap();
        with_batch(|batch| {
            socket.try_receive(batch).unwrap();
            let train = batch.trains().next().unwrap();
            assert_eq!((train.class(), train.bytes()), (3, 16));
        });
    }
}

#[tokio::test]
async fn a_datagram_that_no_packet_can_carry_is_an_error() {
    let (a, b) = joined(1420);
    let (client, server) = bound(&a, &b, A, B).await;
    let to = server.local_addr().unwrap();
    let error = client.send_to(&[0; 65_508], to).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
}

#[tokio::test]
async fn a_connected_socket_hears_its_peer_alone() {
    let (a, b) = joined(1420);
    let (client, server) = bound(&a, &b, A, B).await;
    let stranger = b.datagrams(at(B, 0)).await.unwrap();
    client.connect(server.local_addr().unwrap()).await.unwrap();
    client.try_send(b"question").unwrap();
    let mut buffer = [0; 100];
    let (length, from) = within(server.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], b"question");
    stranger.send_to(b"spam", from).await.unwrap();
    server.send_to(b"answer", from).await.unwrap();
    let (length, _) = within(client.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], b"answer");
    assert_eq!(a.counters().dropped(Dropped::NobodyListens), 1);
}

#[tokio::test]
async fn a_queue_that_nobody_reads_is_bounded_and_drops_are_counted() {
    let (a, b) = joined(1420);
    let (client, server) = bound(&a, &b, A, B).await;
    let to = server.local_addr().unwrap();
    let mut sent = 0;
    while sent < 3_000 {
        match client.send_to(&[0; 1000], to).await {
            Ok(_) => sent += 1,
            Err(_) => tokio::task::yield_now().await,
        }
    }
    until(|| b.counters().datagrams_in == 3_000).await;
    let dropped = b.counters().dropped(Dropped::QueueFull);
    assert_eq!(dropped, 3_000 - (256 << 10) / 1000);
}

#[tokio::test]
async fn each_datagram_of_a_super_packet_is_counted_also_if_the_queue_is_full() {
    let (a, b) = joined(1420);
    let (client, server) = bound(&a, &b, A6, B6).await;
    let to = server.local_addr().ok();
    let host = Kernel(Host);
    let (source, relay) = (
        host.datagrams(at("127.0.0.1", 0)),
        host.datagrams(at("127.0.0.1", 0)),
    );
    let (source, relay) = (source.await.unwrap(), relay.await.unwrap());
    relay.prepare_for_batches();
    for _ in 0..50 {
        let sent = source.send_to(&[0; 1000], relay.local_addr().unwrap());
        sent.await.unwrap();
    }
    within(relay.readable()).await.unwrap();
    with_batch(|batch| {
        relay.try_receive(batch).unwrap();
        let train = batch.trains().next().unwrap();
        let mut sent = 0;
        while sent < 60 {
            sent += usize::from(client.try_send_train(&train, to).lost == 0);
        }
    });
    until(|| b.counters().datagrams_in == 3_000).await;
    assert_eq!((a.counters().datagrams_out, a.counters().sent), (3_000, 60));
    let dropped = b.counters().dropped(Dropped::QueueFull);
    assert_eq!(dropped, 3_000 - (256 << 10) / 1000);
}

#[tokio::test]
async fn a_name_is_asked_for_through_the_stack() {
    let (device, other) = device_pair().unwrap();
    let b = stack(other, [B, B6], 1420);
    let mut settings = settings([A, A6], 1420);
    settings.names.servers = vec![at(B, 53)];
    let a = Stack::start(device, settings).unwrap();
    let server = b.datagrams(at(B, 53)).await.unwrap();
    tokio::spawn(dns_server(server, "target.example."));
    let found = within(a.resolve("target.example", 80)).await.unwrap();
    assert_eq!(found, [at(B, 80), at(B6, 80)]);
    assert_eq!(within(a.resolve("gone.example", 80)).await.unwrap(), []);
    assert_eq!(
        a.resolve("192.0.2.7", 9).await.unwrap(),
        [at("192.0.2.7", 9)]
    );
    let error = b.resolve("target.example", 80).await.unwrap_err();
    assert!(error.to_string().contains("name server"), "{error}");
}

/// Answers questions for one name with both addresses of the second stack.
pub(super) async fn dns_server(socket: Datagrams, name: &'static str) {
    use hickory_resolver::proto::{
        op::{Message, MessageType, ResponseCode},
        rr::{RData, Record, RecordType},
    };
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let question = Message::from_vec(&buffer[..length]).unwrap();
        let mut answer = question.clone();
        answer.metadata.message_type = MessageType::Response;
        let query = question.queries[0].clone();
        let data = match query.query_type() {
            RecordType::A => RData::A(B.parse().unwrap()),
            _ => RData::AAAA(B6.parse().unwrap()),
        };
        match query.name().to_string() == name {
            true => {
                answer.add_answer(Record::from_rdata(query.name().clone(), 60, data));
            }
            false => answer.metadata.response_code = ResponseCode::NXDomain,
        }
        socket
            .send_to(&answer.to_vec().unwrap(), from)
            .await
            .unwrap();
    }
}

async fn bound(a: &Stack, b: &Stack, from: &str, to: &str) -> (Datagrams, Datagrams) {
    let client = a.datagrams(at(from, 0)).await.unwrap();
    (client, b.datagrams(at(to, 0)).await.unwrap())
}
