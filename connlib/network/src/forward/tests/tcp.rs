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
async fn a_target_that_refuses_resets_the_client() {
    let scene = Scene::new(Service::Tcp(target(closed_port().await))).await;
    is_reset(scene.connect().await).await;
    scene.until_refused(Refusal::TargetRefused, 1).await;
}

#[tokio::test]
async fn the_addresses_of_a_name_are_tried_in_order() {
    let far = Arc::new(Named(vec![closed_port().await, echo().await]));
    let service = Service::Tcp("a.example:80".parse().unwrap());
    let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
    is_echoed(&mut scene.connect().await, b"second").await;
}

#[tokio::test]
async fn a_name_without_addresses_is_a_refusal_of_its_own() {
    let service = Service::Tcp("a.example:80".parse().unwrap());
    let scene = Scene::with(
        service,
        Vec::new(),
        Limits::default(),
        Arc::new(Named(Vec::new())),
    )
    .await;
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
