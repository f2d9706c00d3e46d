use std::sync::Arc;

use convoy_network::{
    Host, Kernel,
    counters::Refusal,
    relay::{DEFAULT_BUFFER, Method, Relay},
};
use fast_socks5::{
    client::{Config, Socks5Stream},
    new_udp_header, parse_udp_request,
};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::*;
use convoy_forward::{Access, Forwarder, Limits, Rule, Service};

fn host() -> Arc<dyn Network> {
    Arc::new(Kernel(Host))
}

async fn forwarder(
    service: Service,
    listen: SocketAddr,
    near: &Arc<dyn Network>,
    far: &Arc<dyn Network>,
) -> (Forwarder, SocketAddr) {
    let relay = Relay::new(DEFAULT_BUFFER, Method::Splice);
    let mut forwarder = Forwarder::new(relay, Limits::default());
    let rule = Rule {
        listen: vec![listen],
        service,
        // The stack's addresses are not loopback.
        access: vec![Access {
            allow: ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap()).to_vec(),
            deny: Vec::new(),
        }],
        peers: Arc::default(),
    };
    let at = forwarder.add(rule, near, far).await.unwrap().addresses()[0];
    (forwarder, at)
}

fn loopback() -> SocketAddr {
    at("127.0.0.1", 0)
}

/// Accepts connections and sends back what each sends.
async fn echo(stack: &Stack, port: u16) {
    let listener = stack.listen(at(B, port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
}

#[tokio::test]
async fn a_port_of_the_host_leads_through_the_stack() {
    let (a, b) = joined(1420);
    echo(&b, 80).await;
    let a: Arc<dyn Network> = Arc::new(a);
    let target = format!("{B}:80").parse().unwrap();
    let (_forwarder, at) = forwarder(Service::Tcp(target), loopback(), &host(), &a).await;
    let (read, write) = TcpStream::connect(at).await.unwrap().into_split();
    let sending = tokio::spawn(send(write, 4 << 20, 3));
    let received = within(receive(read)).await;
    assert_eq!(received, (4 << 20, sending.await.unwrap()));
}

#[tokio::test]
async fn a_port_of_the_stack_leads_to_the_host() {
    let (a, b) = joined(1420);
    let server = TcpListener::bind(loopback()).await.unwrap();
    let target = server.local_addr().unwrap().to_string().parse().unwrap();
    let b: Arc<dyn Network> = Arc::new(b);
    let (_forwarder, at) = forwarder(Service::Tcp(target), at(B, 80), &b, &host()).await;
    let (client, accepted) = tokio::join!(a.connect(at), server.accept());
    let (client, accepted) = (client.unwrap(), Stream::from(accepted.unwrap().0));
    exchange(client, accepted, 4 << 20).await;
}

#[tokio::test]
async fn resets_pass_between_the_host_and_the_stack() {
    let (a, b) = joined(1420);
    let listener = b.listen(at(B, 80)).await.unwrap();
    let a: Arc<dyn Network> = Arc::new(a);
    let target = format!("{B}:80").parse().unwrap();
    let (_forwarder, near) = forwarder(Service::Tcp(target), loopback(), &host(), &a).await;
    // From the stack to the host, behind what was sent before.
    let mut client = TcpStream::connect(near).await.unwrap();
    let mut server = within(listener.accept()).await.unwrap().0;
    server.write_all(b"last words").await.unwrap();
    let mut words = [0; 10];
    within(client.read_exact(&mut words)).await.unwrap();
    server.close_by_reset();
    let error = within(client.read(&mut words)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    // From the host to the stack.
    let mut client = TcpStream::connect(near).await.unwrap();
    let mut server = within(listener.accept()).await.unwrap().0;
    client.write_all(b"last words").await.unwrap();
    within(server.read_exact(&mut words)).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let error = within(server.read(&mut words)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn datagrams_of_a_port_lead_through_the_stack() {
    let (a, b) = joined(1420);
    let server = b.datagrams(at(B, 53)).await.unwrap();
    let a: Arc<dyn Network> = Arc::new(a);
    let target = format!("{B}:53").parse().unwrap();
    let (_forwarder, at) = forwarder(Service::Udp(target), loopback(), &host(), &a).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    for length in [1, 1000, 9000] {
        client.send_to(&vec![7; length], at).await.unwrap();
        let mut buffer = [0; 10_000];
        let (received, from) = within(server.recv_from(&mut buffer)).await.unwrap();
        assert_eq!(received, length);
        server.send_to(&buffer[..length], from).await.unwrap();
        assert_eq!(within(client.recv(&mut buffer)).await.unwrap(), length);
    }
}

#[tokio::test]
async fn socks5_resolves_names_and_carries_datagrams_inside() {
    let (device, other) = device_pair().unwrap();
    let b = stack(other, [B, B6], 1420);
    echo(&b, 80).await;
    let names = b.datagrams(at(B, 53)).await.unwrap();
    tokio::spawn(udp::dns_server(names, "target.example."));
    let mut settings = settings([A, A6], 1420);
    settings.names.servers = vec![at(B, 53)];
    let a: Arc<dyn Network> = Arc::new(Stack::start(device, settings).unwrap());
    let (forwarder, near) = forwarder(Service::Socks5(None), loopback(), &host(), &a).await;
    for host in ["target.example", B] {
        let stream = Socks5Stream::connect(near, host.to_owned(), 80, Config::default());
        let mut stream = within(stream).await.unwrap().get_socket();
        stream.write_all(b"hello").await.unwrap();
        let mut hello = [0; 5];
        within(stream.read_exact(&mut hello)).await.unwrap();
        assert_eq!(&hello, b"hello");
    }
    let unknown = Socks5Stream::connect(near, "gone.example".to_owned(), 80, Config::default());
    assert!(within(unknown).await.is_err());
    // It is counted once the client has left.
    let refused = async {
        while forwarder.totals().refused(Refusal::UnknownName) != 1 {
            tokio::task::yield_now().await;
        }
    };
    within(refused).await;
    let server = b.datagrams(at("::", 99)).await.unwrap();
    let mut control = TcpStream::connect(near).await.unwrap();
    control
        .write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut reply = [0; 12];
    within(control.read_exact(&mut reply)).await.unwrap();
    let relay = at("127.0.0.1", u16::from_be_bytes([reply[10], reply[11]]));
    let client = UdpSocket::bind(loopback()).await.unwrap();
    let header = new_udp_header(at(B6, 99)).unwrap();
    client
        .send_to(&[&header[..], b"question"].concat(), relay)
        .await
        .unwrap();
    let mut buffer = [0; 100];
    let (length, from) = within(server.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], b"question");
    server.send_to(b"answer", from).await.unwrap();
    let length = within(client.recv(&mut buffer)).await.unwrap();
    let (_, _, payload) = parse_udp_request(&buffer[..length]).await.unwrap();
    assert_eq!(payload, b"answer");
}
