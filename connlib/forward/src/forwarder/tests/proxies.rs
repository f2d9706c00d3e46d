use base64::{Engine as _, engine::general_purpose::STANDARD};
use fast_socks5::{
    client::{Config, Socks5Stream},
    new_udp_header, parse_udp_request,
};

use super::*;

#[tokio::test]
async fn socks5_connects_to_addresses_and_to_names() {
    let echo = echo().await;
    let far = Arc::new(named(vec![echo]));
    let scene = Scene::with(Service::Socks5(None), Vec::new(), Limits::default(), far).await;
    for host in ["a.example".to_owned(), echo.ip().to_string()] {
        let stream = Socks5Stream::connect(scene.at, host, echo.port(), Config::default());
        is_echoed(&mut within(stream).await.unwrap().get_socket(), b"hello").await;
    }
}

#[tokio::test]
async fn socks5_asks_for_the_password_and_counts_a_wrong_one() {
    let echo = echo().await;
    let scene = Scene::new(Service::Socks5(Some(login()))).await;
    for (password, is_right) in [("sesame", true), ("sesam", false), ("", false)] {
        let (host, user) = (echo.ip().to_string(), "alice".to_owned());
        let config = Config::default();
        let stream = Socks5Stream::connect_with_password(
            scene.at,
            host,
            echo.port(),
            user,
            password.to_owned(),
            config,
        );
        assert_eq!(within(stream).await.is_ok(), is_right, "{password}");
    }
    let stream = Socks5Stream::connect(
        scene.at,
        echo.ip().to_string(),
        echo.port(),
        Config::default(),
    );
    assert!(within(stream).await.is_err());
    scene.until_refused(Refusal::WrongPassword, 3).await;
}

#[tokio::test]
async fn socks5_says_why_a_target_cannot_be_reached() {
    let (closed, _reserved) = closed_port();
    let scene = Scene::new(Service::Socks5(None)).await;
    let stream = Socks5Stream::connect(
        scene.at,
        closed.ip().to_string(),
        closed.port(),
        Config::default(),
    );
    let error = within(stream).await.err().unwrap().to_string();
    assert!(error.contains("refused"), "{error}");
    scene.until_refused(Refusal::TargetRefused, 1).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_say_nothing_or_nonsense_are_let_go() {
    for service in [Service::Socks5(None), Service::HttpConnect(None)] {
        let scene = Scene::new(service).await;
        let mut silent = scene.connect().await;
        // An error reply may come first; the connection closes either way.
        let mut bytes = Vec::new();
        within(silent.read_to_end(&mut bytes)).await.unwrap();
        drop(silent);
        scene.until_refused(Refusal::Silent, 1).await;
        let mut babbler = scene.connect().await;
        babbler.write_all(b"\x16\x03\x01\r\n\r\n").await.unwrap();
        babbler.shutdown().await.unwrap();
        scene.until_refused(Refusal::Malformed, 1).await;
    }
}

#[tokio::test]
async fn socks5_carries_datagrams_of_the_client_and_of_nobody_else() {
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let far = Arc::new(named(vec![server.local_addr().unwrap()]));
    let scene = Scene::with(Service::Socks5(None), Vec::new(), Limits::default(), far).await;
    let (control, relay) = associate(&scene).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    for header in [
        new_udp_header(server.local_addr().unwrap()).unwrap(),
        new_udp_header(("a.example", 53)).unwrap(),
    ] {
        client
            .send_to(&[&header[..], b"question"].concat(), relay)
            .await
            .unwrap();
        let mut question = [0; 100];
        let (length, from) = within(server.recv_from(&mut question)).await.unwrap();
        assert_eq!(&question[..length], b"question");
        server.send_to(b"answer", from).await.unwrap();
        let mut answer = [0; 100];
        let length = within(client.recv(&mut answer)).await.unwrap();
        let (_, _, payload) = parse_udp_request(&answer[..length]).await.unwrap();
        assert_eq!(payload, b"answer");
        // A target that was not asked has nothing to answer.
        UdpSocket::bind(loopback())
            .await
            .unwrap()
            .send_to(b"spam", ("127.0.0.1", from.port()))
            .await
            .unwrap();
    }
    scene.until_refused(Refusal::Denied, 2).await;
    // Another port of the same host is another client.
    let header = new_udp_header(server.local_addr().unwrap()).unwrap();
    UdpSocket::bind(loopback())
        .await
        .unwrap()
        .send_to(&header, relay)
        .await
        .unwrap();
    scene.until_refused(Refusal::Denied, 3).await;
    client.send_to(b"\0\0\x01nonsense", relay).await.unwrap();
    scene.until_refused(Refusal::Malformed, 1).await;
    drop(control);
    scene.until(|totals| totals.closed == 1).await;
}

#[tokio::test]
async fn socks5_carries_bursts_to_many_targets_whole_and_in_order() {
    let scene = Scene::new(Service::Socks5(None)).await;
    let (_control, relay) = associate(&scene).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(UdpSocket::bind(loopback()).await.unwrap());
    }
    // Equal ones, which are moved together, shorter ones behind them, and empty ones.
    let lengths = [900, 900, 900, 300, 900, 0, 0, 1, 1, 1_200];
    let burst = || lengths.iter().cycle().take(30).enumerate();
    let payload = |number: usize, length: &usize| vec![number as u8; *length];
    for (number, length) in burst() {
        for server in &servers {
            let header = new_udp_header(server.local_addr().unwrap()).unwrap();
            let datagram = [header, payload(number, length)].concat();
            client.send_to(&datagram, relay).await.unwrap();
        }
    }
    let mut buffer = [0; 2_000];
    for server in &servers {
        for (number, length) in burst() {
            let (got, from) = within(server.recv_from(&mut buffer)).await.unwrap();
            assert_eq!(buffer[..got], payload(number, length));
            server.send_to(&buffer[..got], from).await.unwrap();
        }
    }
    let mut answered = vec![Vec::new(); servers.len()];
    for _ in 0..servers.len() * burst().count() {
        let length = within(client.recv(&mut buffer)).await.unwrap();
        let (_, from, payload) = parse_udp_request(&buffer[..length]).await.unwrap();
        let from = from.to_string();
        let is_from = |it: &UdpSocket| it.local_addr().unwrap().to_string() == from;
        let server = servers.iter().position(is_from).unwrap();
        answered[server].push(payload.to_vec());
    }
    let expected: Vec<_> = burst()
        .map(|(number, length)| payload(number, length))
        .collect();
    assert!(answered.iter().all(|it| *it == expected));
    let totals = scene.forwarder.totals();
    let bytes = 3 * expected.iter().map(Vec::len).sum::<usize>() as u64;
    assert_eq!((totals.bytes_out, totals.bytes_in), (bytes, bytes));
    assert_eq!(totals.dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn an_association_without_datagrams_ends_although_its_connection_lasts() {
    let scene = Scene::new(Service::Socks5(None)).await;
    let (mut control, _) = associate(&scene).await;
    scene.until(|totals| totals.opened == 1).await;
    tokio::time::sleep(Duration::from_secs(179)).await;
    assert_eq!(scene.forwarder.totals().closed, 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(within(control.read(&mut [0])).await.unwrap(), 0);
    scene.until(|totals| totals.closed == 1).await;
}

/// Each takes four descriptors, where a connection takes two.
#[tokio::test]
async fn an_association_is_a_flow_and_the_oldest_of_the_client_that_has_most_gives_way() {
    let limits = Limits {
        flows: 3,
        ..Limits::default()
    };
    let scene = Scene::with(Service::Socks5(None), Vec::new(), limits, host()).await;
    let (mut first, _) = associate(&scene).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(associate(&scene).await);
    }
    assert_eq!(within(first.read(&mut [0])).await.unwrap(), 0);
    drop(first);
    scene.until_refused(Refusal::Replaced, 1).await;
    let totals = scene.forwarder.totals();
    assert_eq!((totals.opened, totals.closed), (4, 1));
    // The newest one still works.
    let (_, relay) = others[2];
    let server = UdpSocket::bind(loopback()).await.unwrap();
    let header = new_udp_header(server.local_addr().unwrap()).unwrap();
    let client = UdpSocket::bind(loopback()).await.unwrap();
    client.send_to(&header, relay).await.unwrap();
    within(server.recv_from(&mut [0])).await.unwrap();
}

/// A connection that keeps an association, and where its datagrams go.
pub(super) async fn associate(scene: &Scene) -> (TcpStream, SocketAddr) {
    let mut control = scene.connect().await;
    control.write_all(&[5, 1, 0]).await.unwrap();
    within(control.read_exact(&mut [0; 2])).await.unwrap();
    control
        .write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut reply = [0; 10];
    within(control.read_exact(&mut reply)).await.unwrap();
    assert_eq!(reply[..4], [5, 0, 0, 1]);
    let port = u16::from_be_bytes([reply[8], reply[9]]);
    (control, ([127, 0, 0, 1], port).into())
}

#[tokio::test]
async fn http_connects_and_keeps_what_the_client_sent_at_once() {
    let echo = echo().await;
    let scene = Scene::new(Service::HttpConnect(None)).await;
    let mut client = scene.connect().await;
    let request = format!("CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\nearly");
    // In two pieces.
    for piece in [&request[..20], &request[20..]] {
        client.write_all(piece.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 "));
    let mut early = [0; 5];
    within(client.read_exact(&mut early)).await.unwrap();
    assert_eq!(&early, b"early");
    is_echoed(&mut client, b"late").await;
}

#[tokio::test]
async fn a_target_that_resets_what_the_client_sent_at_once_is_no_end() {
    let service = Service::HttpConnect(None);
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(Hasty)).await;
    let mut client = scene.connect().await;
    let request = b"CONNECT a.example:80 HTTP/1.1\r\n\r\nearly";
    client.write_all(request).await.unwrap();
    let established = answer(&mut client).await;
    assert!(established.starts_with("HTTP/1.1 200 "));
    is_reset(client).await;
}

/// The host, whose targets reset what they have accepted.
#[derive(Debug)]
struct Hasty;

impl Network for Hasty {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(vec![loopback()]) })
    }

    fn connect(&self, _: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async {
            let listener = TcpListener::bind(loopback()).await?;
            let stream = TcpStream::connect(listener.local_addr()?).await?;
            listener.accept().await?.0.set_zero_linger()?;
            stream.ready(tokio::io::Interest::ERROR).await?;
            Ok(stream.into())
        })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async move { Kernel(Host).listen(at).await })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move { Kernel(Host).datagrams(at).await })
    }
}

#[tokio::test]
async fn http_says_why_not() {
    let (echo, (closed, _reserved)) = (echo().await, closed_port());
    let right = STANDARD.encode("alice:sesame");
    let wrong = STANDARD.encode("alice:sesames");
    let scene = Scene::new(Service::HttpConnect(Some(login()))).await;
    for (request, status) in [
        (
            format!("CONNECT {echo} HTTP/1.1\r\nproxy-authorization: basic {right}\r\n\r\n"),
            "200",
        ),
        (
            format!("CONNECT {echo} HTTP/1.1\r\nProxy-Authorization: Basic {wrong}\r\n\r\n"),
            "407",
        ),
        (
            format!("CONNECT {echo} HTTP/1.1\r\nProxy-Authorization: Basic ?\r\n\r\n"),
            "407",
        ),
        (format!("CONNECT {echo} HTTP/1.1\r\n\r\n"), "407"),
        (
            format!("CONNECT {closed} HTTP/1.1\r\nProxy-Authorization: Basic {right}\r\n\r\n"),
            "502",
        ),
        (
            format!("CONNECT nothing HTTP/1.1\r\nProxy-Authorization: Basic {right}\r\n\r\n"),
            "400",
        ),
        ("GET http://a.example/ HTTP/1.1\r\n\r\n".to_owned(), "405"),
        ("\x05\x01\x00\r\n\r\n".to_owned(), "400"),
        (
            format!("CONNECT {echo} HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(8200)),
            "400",
        ),
    ] {
        let mut client = scene.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = answer(&mut client).await;
        assert_eq!(
            answer.split(' ').nth(1),
            Some(status),
            "{request}: {answer}"
        );
    }
}

/// The head of an answer.
pub(super) async fn answer(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(client.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn login() -> Login {
    Login {
        user: "alice".to_owned(),
        password: "sesame".to_owned(),
    }
}

/// A client that does not wait for the answer, like a browser that posts through the proxy.
#[tokio::test]
async fn a_refusal_arrives_although_the_client_goes_on_sending() {
    let (closed, _reserved) = closed_port();
    let [high, low] = closed.port().to_be_bytes();
    let connect = [5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low].to_vec();
    let bind = [5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, high, low].to_vec();
    let line = |line: String| format!("{line} HTTP/1.1\r\n\r\n").into_bytes();
    let http = |login| Service::HttpConnect(login);
    for (service, request, answer) in [
        (
            http(Some(login())),
            line(format!("CONNECT {closed}")),
            &b"HTTP/1.1 407"[..],
        ),
        (
            http(None),
            line(format!("CONNECT {closed}")),
            b"HTTP/1.1 502",
        ),
        (http(None), line("POST /".to_owned()), b"HTTP/1.1 405"),
        (
            http(None),
            line("CONNECT nowhere".to_owned()),
            b"HTTP/1.1 400",
        ),
        (Service::Socks5(None), connect, &[5, 0, 5, 5]),
        (Service::Socks5(None), bind, &[5, 0, 5, 7]),
        (Service::Socks5(Some(login())), vec![5, 1, 0], &[5, 255]),
        (
            Service::Socks5(Some(login())),
            [&[5, 1, 2, 1, 5][..], b"alice", &[1], b"x"].concat(),
            &[5, 2, 1],
        ),
    ] {
        let scene = Scene::new(service).await;
        let mut client = scene.connect().await;
        let sent = [&request[..], &[0; 100_000]].concat();
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        // The proxy has closed before the client reads.
        let is_refused = |totals: &Totals| Refusal::ALL.iter().any(|it| totals.refused(*it) > 0);
        scene.until(is_refused).await;
        let mut received = Vec::new();
        let outcome = within(client.read_to_end(&mut received)).await;
        assert!(received.starts_with(answer), "{received:?}, {outcome:?}");
        outcome.unwrap();
    }
}
