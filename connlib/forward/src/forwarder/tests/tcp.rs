use std::os::fd::AsRawFd as _;

use nix::sys::socket::{MsgFlags, send};
use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn connections_reach_the_target_and_are_counted() {
    let scene = Scene::new(Service::Tcp(target(echo().await))).await;
    let mut client = scene.connect().await;
    is_echoed(&mut client, b"hello").await;
    let totals = scene.forwarder.totals();
    assert_eq!((totals.opened, totals.closed), (1, 0));
    assert_eq!((totals.bytes_out, totals.bytes_in), (5, 5));
    drop(client);
    scene.until(|totals| totals.closed == 1).await;
}

#[tokio::test]
async fn a_client_that_is_not_allowed_is_reset_and_counted() {
    let service = Service::Tcp(target(echo().await));
    let scene = Scene::with(service, only("192.0.2.0/24"), Limits::default(), host()).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::Denied, 1).await;
}

#[tokio::test]
async fn one_connection_too_many_is_reset_and_one_more_fits_when_another_has_ended() {
    let limits = Limits {
        connections: 1,
        flows: 0,
    };
    let scene = Scene::with(
        Service::Tcp(target(echo().await)),
        Vec::new(),
        limits,
        host(),
    )
    .await;
    let mut first = scene.connect().await;
    is_echoed(&mut first, b"one").await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::TooMany, 1).await;
    drop(first);
    scene.until(|totals| totals.closed == 1).await;
    // Its place is free a moment after it was counted.
    tokio::task::yield_now().await;
    is_echoed(&mut scene.connect().await, b"two").await;
}

#[tokio::test]
async fn idle_connections_to_one_rule_leave_some_to_another() {
    let limits = Limits {
        connections: 4,
        flows: 0,
    };
    let service = Service::Tcp(target(echo().await));
    let mut scene = Scene::with(service.clone(), Vec::new(), limits, host()).await;
    let other = Rule {
        listen: vec![loopback()],
        service,
        access: Vec::new(),
        peers: Arc::default(),
    };
    let running = scene.forwarder.add(other, &host(), &host()).await.unwrap();
    let other = running.addresses()[0];
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut client = scene.connect().await;
        // The last one is reset.
        let _ = within(client.write_all(b"x")).await;
        let _ = within(client.read(&mut [0])).await;
        idle.push(client);
    }
    let mut client = within(TcpStream::connect(other)).await.unwrap();
    is_echoed(&mut client, b"hello").await;
    assert_eq!(scene.forwarder.totals().refused(Refusal::TooMany), 1);
}

#[tokio::test]
async fn idle_connections_of_one_client_leave_some_to_another() {
    let limits = Limits {
        connections: 18,
        flows: 0,
    };
    let service = Service::Tcp(target(echo().await));
    let scene = Scene::with(service, Vec::new(), limits, host()).await;
    let mut idle = Vec::new();
    for _ in 0..15 {
        let mut client = scene.connect().await;
        is_echoed(&mut client, b"x").await;
        idle.push(client);
    }
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::TooManyOfPeer, 1).await;
    for other in ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(other.parse().unwrap()).unwrap();
        let mut client = within(socket.connect(scene.at)).await.unwrap();
        is_echoed(&mut client, b"hello").await;
        idle.push(client);
    }
    idle.drain(..14);
    scene.until(|totals| totals.closed == 14).await;
    // Its places are free a moment after they were counted.
    tokio::task::yield_now().await;
    is_echoed(&mut scene.connect().await, b"again").await;
}

#[tokio::test]
async fn addresses_of_one_peer_are_one_client() {
    let limits = Limits {
        connections: 18,
        flows: 0,
    };
    let mut forwarder = Forwarder::new(Relay::new(DEFAULT_BUFFER, Method::Splice), limits);
    let prefixes = [("127.0.0.2/31", 1), ("127.0.0.4/31", 2)];
    let prefixes = prefixes.map(|(prefix, peer)| (prefix.parse().unwrap(), peer));
    let rule = Rule {
        listen: vec![loopback()],
        service: Service::Tcp(target(echo().await)),
        access: Vec::new(),
        peers: Arc::new(Peers::new(prefixes)),
    };
    let at = forwarder
        .add(rule, &host(), &host())
        .await
        .unwrap()
        .addresses()[0];
    let mut open = Vec::new();
    let mut got = Vec::new();
    for from in ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"] {
        let before = open.len();
        loop {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from.parse().unwrap()).unwrap();
            let mut client = within(socket.connect(at)).await.unwrap();
            // One too many is reset, maybe before it has written.
            let _ = client.write_all(b"x").await;
            match within(client.read(&mut [0])).await {
                Ok(1) => open.push(client),
                _ => break,
            }
        }
        got.push(open.len() - before);
    }
    assert_eq!(got, [15, 1, 2]);
}

#[tokio::test]
async fn a_target_that_refuses_resets_the_client() {
    let (closed, _reserved) = closed_port();
    let scene = Scene::new(Service::Tcp(target(closed))).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::TargetRefused, 1).await;
}

#[tokio::test]
async fn urgent_bytes_arrive_although_the_target_answers_late() {
    let gate = Arc::new(Semaphore::new(0));
    let service = Service::Tcp(target(echo().await));
    let far = Arc::new(Late(Arc::clone(&gate)));
    let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
    let mut client = scene.connect().await;
    for byte in [b"a", b"b"] {
        let sent = send(client.as_raw_fd(), byte, MsgFlags::MSG_OOB);
        assert_eq!(sent, Ok(1));
    }
    client.write_all(b"c").await.unwrap();
    client.shutdown().await.unwrap();
    gate.add_permits(1);
    let mut received = Vec::new();
    within(client.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, b"abc");
}

#[tokio::test]
async fn the_addresses_of_a_name_are_tried_in_order() {
    let (closed, _reserved) = closed_port();
    let far = Arc::new(named(vec![closed, echo().await]));
    let service = Service::Tcp("a.example:80".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
    is_echoed(&mut scene.connect().await, b"second").await;
}

#[tokio::test]
async fn a_name_without_addresses_is_a_refusal_of_its_own() {
    let service = Service::Tcp("a.example:80".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(named([]))).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::UnknownName, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_given_up() {
    let service = Service::Tcp("192.0.2.1:80".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(Silent)).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::TimedOut, 1).await;
}

#[tokio::test]
async fn a_lack_of_descriptors_is_a_refusal_of_its_own() {
    let service = Service::Tcp("192.0.2.1:80".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(Exhausted)).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::NoDescriptors, 1).await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_needs_a_list_or_a_password() {
    let login = Login {
        user: "a".to_owned(),
        password: "b".to_owned(),
    };
    for (service, access, is_guarded) in [
        (Service::Socks5(None), Vec::new(), false),
        (Service::Socks5(None), vec![Access::default()], false),
        (Service::Socks5(None), only("192.0.2.0/24"), true),
        (Service::Socks5(Some(login.clone())), Vec::new(), true),
        (Service::HttpConnect(Some(login)), Vec::new(), true),
        (Service::Tcp("a:1".parse().unwrap()), Vec::new(), false),
    ] {
        let mut forwarder = Forwarder::new(
            Relay::new(DEFAULT_BUFFER, Method::Splice),
            Limits::default(),
        );
        let listen = vec![loopback(), ([0, 0, 0, 0], 0).into()];
        let rule = Rule {
            listen,
            service,
            access,
            peers: Arc::default(),
        };
        let outcome = forwarder.add(rule, &host(), &host()).await;
        let is_refused = matches!(outcome, Err(StartError::Unguarded(_)));
        assert_eq!(is_refused, !is_guarded);
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind(loopback()).await.unwrap();
    let at = taken.local_addr().unwrap();
    let mut forwarder = Forwarder::new(
        Relay::new(DEFAULT_BUFFER, Method::Splice),
        Limits::default(),
    );
    let rule = Rule {
        listen: vec![at],
        service: Service::Socks5(None),
        access: Vec::new(),
        peers: Arc::default(),
    };
    let error = forwarder.add(rule, &host(), &host()).await.unwrap_err();
    assert!(error.to_string().contains(&at.to_string()), "{error}");
}

#[test]
fn targets_are_names_or_addresses_with_a_port() {
    for text in ["example.com:80", "192.0.2.1:80", "[2001:db8::1]:80"] {
        assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
    }
    for text in [
        "example.com",
        ":80",
        "a:0",
        "a:b",
        "2001:db8::1:80",
        "[a]:1",
        "a b:1",
        "a:70000",
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}

/// The host, whose targets answer for each permit.
#[derive(Debug)]
struct Late(Arc<Semaphore>);

impl Network for Late {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async move { Kernel(Host).resolve(name, port).await })
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async move {
            self.0.acquire().await.unwrap().forget();
            Kernel(Host).connect(to).await
        })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async move { Kernel(Host).listen(at).await })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move { Kernel(Host).datagrams(at).await })
    }
}

/// A network in which nothing answers.
#[derive(Debug)]
struct Silent;

/// A network without descriptors.
#[derive(Debug)]
struct Exhausted;

macro_rules! answers {
    ($network:ty, $answer:expr) => {
        impl Network for $network {
            fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
                $answer
            }

            fn connect(&self, _: SocketAddr) -> Answer<'_, Stream> {
                $answer
            }

            fn listen(&self, _: SocketAddr) -> Answer<'_, Listener> {
                $answer
            }

            fn datagrams(&self, _: SocketAddr) -> Answer<'_, Datagrams> {
                $answer
            }
        }
    };
}

answers!(Silent, Box::pin(std::future::pending()));
answers!(Exhausted, Box::pin(async { Err(Errno::EMFILE.into()) }));
