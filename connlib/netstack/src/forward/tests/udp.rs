use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_answered_flow_expires_three_minutes_after_its_last_datagram() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let scene = Scene::new(Service::Udp(target(server.local_addr().unwrap()))).await;
    let client = connected(&scene).await;
    for _ in 0..2 {
        exchange(&client, &server).await;
        sleep(Duration::from_secs(179)).await;
        assert_eq!(scene.forwarder.totals().closed, 0);
    }
    sleep(Duration::from_secs(2)).await;
    let totals = scene.forwarder.totals();
    assert_eq!((totals.opened, totals.closed), (1, 1));
    assert_eq!((totals.bytes_out, totals.bytes_in), (16, 12));
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

#[tokio::test]
async fn each_client_has_a_flow_of_its_own_and_one_too_many_is_refused() {
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
    connected(&scene).await.send(b"third").await.unwrap();
    scene.until_refused(Refusal::TooMany, 1).await;
    assert_eq!(exchange(&clients[0], &server).await, first);
}

#[tokio::test]
async fn a_client_that_is_not_allowed_gets_no_flow() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let service = Service::Udp(target(server.local_addr().unwrap()));
    let scene = Scene::with(service, only("192.0.2.0/24"), Limits::default(), host()).await;
    connected(&scene).await.send(b"hello").await.unwrap();
    scene.until_refused(Refusal::Denied, 1).await;
    assert_eq!(scene.forwarder.totals().opened, 0);
}

#[tokio::test]
async fn a_target_that_refuses_may_answer_later() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let at = server.local_addr().unwrap();
    drop(server);
    let scene = Scene::new(Service::Udp(target(at))).await;
    let client = connected(&scene).await;
    client.send(b"too early").await.unwrap();
    scene.until(|totals| totals.opened == 1).await;
    let server = UdpSocket::bind(at).await.unwrap();
    // The refusal of the first may cost the second.
    let waiting = async {
        loop {
            client.send(b"question").await.unwrap();
            tokio::task::yield_now().await;
            if server.try_recv_from(&mut [0; 9]).is_ok() {
                break;
            }
        }
    };
    within(waiting).await;
}

#[tokio::test]
async fn datagrams_wait_while_a_name_is_looked_up() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let far = Arc::new(Named(vec![server.local_addr().unwrap()]));
    let service = Service::Udp("a.example:53".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
    let client = connected(&scene).await;
    for number in 0..10_u8 {
        client.send(&[number]).await.unwrap();
    }
    for number in 0..10 {
        let mut byte = [0];
        within(server.recv(&mut byte)).await.unwrap();
        assert_eq!(byte[0], number);
    }
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
