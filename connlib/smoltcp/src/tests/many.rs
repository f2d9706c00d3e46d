use super::*;

const CONNECTIONS: usize = 1000;

#[tokio::test]
async fn a_thousand_connections_exist_at_once_and_leave_nothing_behind() {
    let (a, b) = joined(1420);
    let listener = b.listen(at(B, 80)).await.unwrap();
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let (client, server) = tokio::join!(a.connect(at(B, 80)), within(listener.accept()));
        ends.push((client.unwrap(), server.unwrap().0));
    }
    assert_eq!((a.flows(), b.flows()), (CONNECTIONS, CONNECTIONS));
    for (index, (client, _)) in ends.iter_mut().enumerate() {
        client.write_all(&index.to_be_bytes()).await.unwrap();
    }
    for (_, server) in &mut ends {
        let mut bytes = [0; 8];
        within(server.read_exact(&mut bytes)).await.unwrap();
        server.write_all(&bytes).await.unwrap();
    }
    for (index, (client, _)) in ends.iter_mut().enumerate() {
        assert_eq!(within(client.read_u64()).await.unwrap(), index as u64);
    }
    drop(ends);
    until(|| a.flows() + b.flows() == 0).await;
    let counters = a.counters();
    assert_eq!(counters.flows_opened, CONNECTIONS as u64);
    assert_eq!(counters.flows_closed, CONNECTIONS as u64);
}

#[tokio::test]
async fn short_connections_follow_each_other_without_waiting_for_time_wait() {
    let (a, b) = joined(1420);
    let listener = b.listen(at(B, 80)).await.unwrap();
    for _ in 0..1_000 {
        let (client, server) = tokio::join!(a.connect(at(B, 80)), within(listener.accept()));
        let (mut client, mut server) = (client.unwrap(), server.unwrap().0);
        client.write_all(b"x").await.unwrap();
        client.shutdown().await.unwrap();
        let mut all = Vec::new();
        within(server.read_to_end(&mut all)).await.unwrap();
        drop(server);
        within(client.read_to_end(&mut all)).await.unwrap();
    }
    until(|| a.flows() + b.flows() == 0).await;
    assert_eq!(a.counters().resets + b.counters().resets, 0);
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer_without_a_spin_and_loses_nothing() {
    let (a, b) = joined(1420);
    let (client, mut server) = within(connected(&a, &b, B)).await;
    let writing = tokio::spawn(send(client, 8 << 20, 5));
    let mut last = 0;
    // No reader takes anything: sooner or later, nothing can be written.
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sent = a.counters().sent_bytes;
        if sent == last {
            break;
        }
        last = sent;
    }
    assert!(last < 2 << 20, "{last}");
    assert!(!writing.is_finished());
    // Another connection is not affected.
    let (other, far) = within(connected(&a, &b, B6)).await;
    exchange(other, far, 1 << 20).await;
    let received = within(receive(&mut server)).await;
    assert_eq!(received, (8 << 20, writing.await.unwrap()));
}

#[tokio::test]
async fn a_device_that_nobody_reads_stops_writers_and_drops_none_of_their_segments() {
    let (device, tunnels) = device_pair().unwrap();
    // Room for two super-packets.
    rustix::net::sockopt::set_socket_send_buffer_size(&device, 70_000).unwrap();
    let (far, other) = device_pair().unwrap();
    let (a, b) = (stack(device, [A, A6], 1420), stack(other, [B, B6], 1420));
    let relay = tokio::spawn(crate::tests::hostile::relay(tunnels, far, 0));
    let mut ends = Vec::new();
    for _ in 0..100 {
        ends.push(within(connected(&a, &b, B)).await);
    }
    // The relay does not run while this task does.
    for (client, _) in &mut ends {
        let mut waits = std::task::Context::from_waker(std::task::Waker::noop());
        let write = std::pin::Pin::new(client);
        let written = tokio::io::AsyncWrite::poll_write(write, &mut waits, &[1; 500_000]);
        assert!(matches!(written, std::task::Poll::Ready(Ok(500_000))));
    }
    assert!(a.shared.device.is_blocked());
    for (client, server) in ends {
        drop(client);
        let (length, _) = within(receive(server)).await;
        assert_eq!(length, 500_000);
    }
    assert_eq!(a.counters().dropped(Dropped::DeviceFull), 0);
    relay.abort();
}
