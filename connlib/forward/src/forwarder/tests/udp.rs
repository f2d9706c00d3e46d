use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stream_expires_three_minutes_after_its_last_datagram() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    exchange(&client, &server).await;
    for _ in 0..2 {
        exchange(&client, &server).await;
        sleep(Duration::from_secs(179)).await;
        assert_eq!(scene.forwarder.totals().closed, 0);
    }
    sleep(Duration::from_secs(2)).await;
    let totals = scene.forwarder.totals();
    assert_eq!((totals.opened, totals.closed), (1, 1));
    assert_eq!((totals.bytes_out, totals.bytes_in), (24, 18));
    // The next datagram begins another flow.
    exchange(&client, &server).await;
    assert_eq!(scene.forwarder.totals().opened, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_flow_expires_after_thirty_seconds() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    client.send(b"anybody?").await.unwrap();
    within(server.recv(&mut [0; 9])).await.unwrap();
    sleep(Duration::from_secs(29)).await;
    assert_eq!(scene.forwarder.totals().closed, 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.forwarder.totals().closed, 1);
}

#[tokio::test(start_paused = true)]
async fn one_question_and_its_answer_expire_after_thirty_seconds() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    exchange(&client, &server).await;
    sleep(Duration::from_secs(29)).await;
    assert_eq!(scene.forwarder.totals().closed, 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.forwarder.totals().closed, 1);
}

#[tokio::test(start_paused = true)]
async fn each_client_has_a_flow_of_its_own_and_one_too_many_replaces_the_oldest() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let service = Service::Udp(target(server.local_addr().unwrap()));
    let limits = Limits {
        connections: 0,
        flows: 2,
    };
    let scene = Scene::with(service, Vec::new(), limits, host()).await;
    let clients = [connected(&scene).await, connected(&scene).await];
    let first = exchange(&clients[0], &server).await;
    let second = exchange(&clients[1], &server).await;
    assert_ne!(first, second);
    // It has been used since it began.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(exchange(&clients[0], &server).await, first);
    exchange(&connected(&scene).await, &server).await;
    scene.until_refused(Refusal::Replaced, 1).await;
    assert_eq!(exchange(&clients[0], &server).await, first);
    // A client that was replaced begins another flow.
    exchange(&clients[1], &server).await;
    scene.until_refused(Refusal::Replaced, 2).await;
    scene
        .until(|totals| totals.opened - totals.closed == 2)
        .await;
}

#[tokio::test]
async fn neither_a_client_nor_a_rule_takes_all_flows_from_others() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let service = || Service::Udp(target(server.local_addr().unwrap()));
    let limits = Limits {
        connections: 0,
        flows: 20,
    };
    let mut scene = Scene::with(service(), Vec::new(), limits, host()).await;
    let rule = Rule {
        listen: vec![loopback()],
        service: service(),
        access: Vec::new(),
        peers: Arc::default(),
    };
    let running = scene.forwarder.add(rule, &host(), &host()).await.unwrap();
    let other_rule = running.addresses()[0];
    let other = |at| async move {
        let socket = UdpSocket::bind("127.0.0.9:0").await.unwrap();
        socket.connect(at).await.unwrap();
        socket
    };
    let others = [other(scene.at).await, other(other_rule).await];
    let mut before = Vec::new();
    for socket in &others {
        before.push(exchange(socket, &server).await);
    }
    let mut greedy = Vec::new();
    for _ in 0..60 {
        greedy.push(connected(&scene).await);
        exchange(greedy.last().unwrap(), &server).await;
    }
    scene.until_refused(Refusal::Replaced, 42).await;
    for (socket, before) in others.iter().zip(before) {
        assert_eq!(exchange(socket, &server).await, before);
    }
}

#[tokio::test]
async fn a_client_that_is_not_allowed_gets_no_flow() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let service = Service::Udp(target(server.local_addr().unwrap()));
    let scene = Scene::with(service, only("192.0.2.0/24"), Limits::default(), host()).await;
    let client = connected(&scene).await;
    for _ in 0..3 {
        client.send(b"hello").await.unwrap();
    }
    scene.until_refused(Refusal::Denied, 3).await;
    assert_eq!(scene.forwarder.totals().opened, 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_datagram_after_a_refusal_arrives() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let at = server.local_addr().unwrap();
    drop(server);
    let scene = Scene::new(Service::Udp(target(at))).await;
    let client = connected(&scene).await;
    client.send(b"too early").await.unwrap();
    scene.until(|totals| totals.opened == 1).await;
    // Time passes once nothing else is to be done.
    sleep(Duration::from_secs(1)).await;
    let server = UdpSocket::bind(at).await.unwrap();
    exchange(&client, &server).await;
    assert_eq!(scene.forwarder.totals().dropped, 0);
}

#[tokio::test]
async fn datagrams_wait_while_a_name_is_looked_up() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let far = Arc::new(named(vec![server.local_addr().unwrap()]));
    let service = Service::Udp("a.example:53".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
    let client = connected(&scene).await;
    for number in 0..40_u8 {
        client.send(&[number]).await.unwrap();
    }
    for number in 0..40 {
        let mut byte = [0];
        within(server.recv(&mut byte)).await.unwrap();
        assert_eq!(byte[0], number);
    }
}

#[tokio::test]
async fn datagrams_that_wait_for_a_name_that_does_not_come_take_bounded_memory() {
    let service = Service::Udp("silent.example:53".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(SILENT)).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let client = connected(&scene).await;
        for _ in 0..2 {
            client.send(&[7; 60_000]).await.unwrap();
        }
        clients.push(client);
    }
    // Each client has a flow, but eight of the datagrams are half a MiB.
    scene.until_refused(Refusal::TooMuchWaiting, 32).await;
    assert_eq!(scene.forwarder.totals().dropped, 0);
}

#[tokio::test]
async fn datagrams_keep_their_order_and_lengths_in_both_directions() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    let flow = exchange(&client, &server).await;
    // Equal ones, shorter ones behind them, longer ones, empty ones, and more than one call receives.
    let lengths = [200, 200, 200, 50, 200, 700, 700, 0, 0, 700, 1, 1, 1];
    let lengths: Vec<_> = lengths.into_iter().cycle().take(100).collect();
    let before = scene.forwarder.totals();
    for _ in 0..5 {
        for (number, length) in lengths.iter().enumerate() {
            let datagram = vec![number as u8; *length];
            client.try_send(&datagram).unwrap();
            server.try_send_to(&datagram, flow).unwrap();
        }
        are_received(&server, &lengths).await;
        are_received(&client, &lengths).await;
    }
    let totals = scene.forwarder.totals();
    let bytes = 5 * lengths.iter().sum::<usize>() as u64;
    assert_eq!(totals.bytes_out - before.bytes_out, bytes);
    assert_eq!(totals.bytes_in - before.bytes_in, bytes);
    assert_eq!((totals.opened, totals.dropped), (1, 0));
}

#[tokio::test]
async fn the_longest_datagrams_pass() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    let flow = exchange(&client, &server).await;
    for length in [1473, 40_000, 65_507] {
        let datagram = vec![length as u8; length];
        let mut received = vec![0; 65_535];
        client.send(&datagram).await.unwrap();
        let size = within(server.recv(&mut received)).await.unwrap();
        assert_eq!(received[..size], datagram);
        server.send_to(&datagram, flow).await.unwrap();
        let size = within(client.recv(&mut received)).await.unwrap();
        assert_eq!(received[..size], datagram);
    }
}

#[tokio::test]
async fn clients_that_send_by_turns_keep_to_their_flows() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let clients = [connected(&scene).await, connected(&scene).await];
    let mut flows = Vec::new();
    for client in &clients {
        flows.push(exchange(client, &server).await);
    }
    for number in 0..50_u8 {
        for (index, client) in clients.iter().enumerate() {
            client.try_send(&[index as u8, number]).unwrap();
        }
    }
    let mut next = [0; 2];
    for _ in 0..100 {
        let mut datagram = [0; 3];
        let (length, from) = within(server.recv_from(&mut datagram)).await.unwrap();
        let index = usize::from(datagram[0]);
        assert_eq!((length, datagram[1], from), (2, next[index], flows[index]));
        next[index] += 1;
        server.try_send_to(&datagram[..length], from).unwrap();
    }
    for (index, client) in clients.iter().enumerate() {
        for number in 0..50 {
            let mut answer = [0; 3];
            within(client.recv(&mut answer)).await.unwrap();
            assert_eq!(answer[..2], [index as u8, number]);
        }
    }
}

#[tokio::test]
async fn an_error_from_the_targets_host_does_not_cost_the_datagrams_that_follow_together() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let at = server.local_addr().unwrap();
    let scene = Scene::new(Service::Udp(target(at))).await;
    let client = connected(&scene).await;
    exchange(&client, &server).await;
    let before = scene.forwarder.totals().bytes_out;
    drop(server);
    client.send(b"nobody hears this").await.unwrap();
    scene.until(|totals| totals.bytes_out > before).await;
    let server = UdpSocket::bind(at).await.unwrap();
    for number in 0..10 {
        client.try_send(&[number; 10]).unwrap();
    }
    are_received(&server, &[10; 10]).await;
}

async fn connected(scene: &Scene) -> UdpSocket {
    let client = UdpSocket::bind(loopback()).await.unwrap();
    client.connect(scene.at).await.unwrap();
    client
}

/// A question and its answer; from where the question came.
async fn exchange(client: &UdpSocket, server: &UdpSocket) -> SocketAddr {
    client.send(b"question").await.unwrap();
    let mut question = [0; 9];
    let (length, from) = within(server.recv_from(&mut question)).await.unwrap();
    assert_eq!(&question[..length], b"question");
    server.send_to(b"answer", from).await.unwrap();
    let mut answer = [0; 9];
    let length = within(client.recv(&mut answer)).await.unwrap();
    assert_eq!(&answer[..length], b"answer");
    from
}

/// Datagrams of these lengths arrive; each byte is the datagram's number.
async fn are_received(socket: &UdpSocket, lengths: &[usize]) {
    for (number, length) in lengths.iter().enumerate() {
        let mut datagram = [0; 1000];
        let size = within(socket.recv(&mut datagram)).await.unwrap();
        assert_eq!(datagram[..size], vec![number as u8; *length], "{number}");
    }
}
