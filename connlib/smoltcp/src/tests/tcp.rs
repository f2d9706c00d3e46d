use super::*;

#[tokio::test]
async fn megabytes_arrive_in_both_directions_over_both_families_and_at_any_mtu() {
    for (address, mtu) in [
        (B, 1420),
        (B6, 1420),
        (B, 1280),
        (B6, 1280),
        (B, 65_535),
        (B6, 65_535),
    ] {
        let (a, b) = joined(mtu);
        let (client, server) = within(connected(&a, &b, address)).await;
        exchange(client, server, 8 << 20).await;
        let counters = a.counters();
        assert!(counters.sent_super > 0 || mtu == 65_535, "{counters:?}");
        for stack in [&a, &b] {
            let counters = stack.counters();
            let drops = Dropped::ALL.map(|reason| counters.dropped(reason));
            assert_eq!(drops, [0; Dropped::ALL.len()], "{counters:?}");
        }
        until(|| a.flows() + b.flows() == 0).await;
    }
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    let (a, b) = joined(1420);
    let (mut client, mut server) = within(connected(&a, &b, B)).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    within(server.read_to_end(&mut question)).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    let mut answer = [0; 6];
    within(client.read_exact(&mut answer)).await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(within(client.read(&mut answer)).await.unwrap(), 0);
    let error = client.write(b"more").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    until(|| a.flows() + b.flows() == 0).await;
}

#[tokio::test]
async fn what_was_written_arrives_although_its_writer_is_gone() {
    let (a, b) = joined(1420);
    let (mut client, mut server) = within(connected(&a, &b, B)).await;
    client.write_all(&[7; 300_000]).await.unwrap();
    drop(client);
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, [7; 300_000]);
    drop(server);
    until(|| a.flows() + b.flows() == 0).await;
}

#[tokio::test]
async fn a_stream_that_is_dropped_unread_resets_the_other_end() {
    let (a, b) = joined(1420);
    let (mut client, mut server) = within(connected(&a, &b, B)).await;
    client.write_all(b"unread").await.unwrap();
    until(|| b.counters().received > 2).await;
    // Until it can be read it might not be there yet.
    let mut first = [0];
    within(server.read_exact(&mut first)).await.unwrap();
    drop(server);
    let error = within(client.read(&mut first)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(a.counters().resets, 1);
    until(|| a.flows() + b.flows() == 0).await;
}

#[tokio::test]
async fn a_reset_on_demand_arrives_as_one() {
    let (a, b) = joined(1420);
    let (mut client, mut server) = within(connected(&a, &b, B6)).await;
    server.close_by_reset();
    let error = within(client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let error = client.write(b"x").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_port_without_listener_refuses_and_so_does_one_whose_listener_has_gone() {
    let (a, b) = joined(1420);
    let listener = b.listen(at(B, 0)).await.unwrap();
    let gone = listener.local_addr().unwrap().port();
    drop(listener);
    for (address, port) in [(B, 9), (B6, 9), (B, gone)] {
        let error = within(a.connect(at(address, port))).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
    until(|| b.counters().dropped(Dropped::NobodyListens) == 3).await;
    until(|| a.flows() + b.flows() == 0).await;
}

#[tokio::test]
async fn an_address_that_nobody_owns_is_given_up() {
    let (device, _silent) = device_pair().unwrap();
    let a = stack(device, [A, A6], 1420);
    let error = within(a.connect(at("192.0.2.1", 80))).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!((a.flows(), a.counters().timeouts), (0, 1));
}

#[tokio::test]
async fn no_connection_is_tried_that_cannot_be() {
    let (a, _b) = joined(1420);
    for (to, kind) in [
        (at(A, 80), io::ErrorKind::HostUnreachable),
        (at("0.0.0.0", 80), io::ErrorKind::AddrNotAvailable),
        (at("224.0.0.1", 80), io::ErrorKind::AddrNotAvailable),
        (at(B, 0), io::ErrorKind::AddrNotAvailable),
    ] {
        assert_eq!(a.connect(to).await.unwrap_err().kind(), kind, "{to}");
    }
    let error = a.listen(at(B, 0)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    let _taken = a.listen(at(A, 80)).await.unwrap();
    let error = a.listen(at(A, 80)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_listener_on_every_address_hears_both_its_families_addresses() {
    let (a, b) = joined(1420);
    for (any, address) in [("0.0.0.0", B), ("::", B6)] {
        let listener = b.listen(at(any, 80)).await.unwrap();
        let (client, server) = tokio::join!(a.connect(at(address, 80)), listener.accept());
        let (server, from) = server.unwrap();
        assert_eq!(client.unwrap().local_address(), Some(from));
        assert_eq!(server.local_address(), Some(at(address, 80)));
    }
}

#[tokio::test]
async fn a_stack_that_ends_ends_its_connections_and_listeners() {
    let (a, b) = joined(1420);
    let (mut client, mut server) = within(connected(&a, &b, B)).await;
    let listener = a.listen(at(A, 80)).await.unwrap();
    drop(a);
    let error = within(client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
    assert!(within(listener.accept()).await.is_err());
    // The other stack sees its device end.
    let error = within(server.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
    let error = b.connect(at(A, 80)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
}
