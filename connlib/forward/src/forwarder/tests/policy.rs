//! Targets that clients name and a policy allows or denies.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use convoy_network::{Guarded, expiry::RETRY, policy::Policy, translators::Discovery};
use fast_socks5::new_udp_header;
use tokio::task::yield_now;

use super::{
    proxies::{answer, associate},
    *,
};

/// A network that finds out only when it is asked that its targets are forbidden.
#[derive(Debug, Default)]
struct Unaware(Arc<AtomicBool>);

impl Network for Unaware {
    fn check(&self, _: SocketAddr) -> Result<(), Refusal> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Refusal::Forbidden),
            false => Ok(()),
        }
    }

    fn discover(&self, _: SocketAddr) -> Option<Discovery> {
        let is_aware = Arc::clone(&self.0);
        Some(Box::pin(async move {
            yield_now().await;
            is_aware.store(true, Ordering::Relaxed);
        }))
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(vec![loopback()]) })
    }

    sockets_of_the_host!();
}

#[tokio::test]
async fn targets_are_checked_once_their_names_are_resolved() {
    let echo = echo().await;
    for (is_trusting, allow, status) in [
        (false, None, "403"),
        (false, Some("127.0.0.1/32"), "200"),
        (true, None, "200"),
    ] {
        let guarded = Guarded {
            // Every name is one of this host's.
            network: Arc::new(named(vec![echo])),
            policy: Policy {
                allow: allow.into_iter().map(|it| it.parse().unwrap()).collect(),
                ..Policy::default()
            },
            is_trusting,
        };
        let service = Service::HttpConnect(None);
        let far = Arc::new(guarded);
        let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
        for target in [echo.to_string(), format!("name.example:{}", echo.port())] {
            let mut client = scene.connect().await;
            let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = answer(&mut client).await;
            assert_eq!(answer.split(' ').nth(1), Some(status), "{target}");
        }
    }
}

#[tokio::test]
async fn datagrams_for_a_name_go_to_the_first_of_its_addresses_that_may_be_reached() {
    let (allowed, other) = (
        UdpSocket::bind(loopback()).await.unwrap(),
        UdpSocket::bind("127.0.0.2:0").await.unwrap(),
    );
    let addresses = [&other, &allowed].map(|it| it.local_addr().unwrap());
    let guarded = Guarded {
        network: Arc::new(named(addresses)),
        policy: Policy {
            allow: vec!["127.0.0.1/32".parse().unwrap()],
            ..Policy::default()
        },
        is_trusting: false,
    };
    let service = Service::Socks5(None);
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(guarded)).await;
    let (_control, relay) = associate(&scene).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    let header = new_udp_header(("name.example", 80)).unwrap();
    let datagram = [&header[..], b"question"].concat();
    client.send_to(&datagram, relay).await.unwrap();
    let mut question = [0; 100];
    let (length, _) = within(allowed.recv_from(&mut question)).await.unwrap();
    assert_eq!(&question[..length], b"question");
}

#[tokio::test]
async fn a_client_waits_until_the_network_can_tell_that_its_target_is_forbidden() {
    let behind: SocketAddr = "192.0.2.1:80".parse().unwrap();
    for target in [behind.to_string(), "name.example:80".to_owned()] {
        let service = Service::HttpConnect(None);
        let far = Arc::new(Unaware::default());
        let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
        let mut client = scene.connect().await;
        let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = answer(&mut client).await;
        assert_eq!(answer.split(' ').nth(1), Some("403"), "{target}");
    }
    for header in [
        new_udp_header(behind).unwrap(),
        new_udp_header(("name.example", 80)).unwrap(),
    ] {
        let service = Service::Socks5(None);
        let far = Arc::new(Unaware::default());
        let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
        let (_control, relay) = associate(&scene).await;
        let client = UdpSocket::bind(loopback()).await.unwrap();
        client.send_to(&header, relay).await.unwrap();
        scene.until_refused(Refusal::Forbidden, 1).await;
        assert_eq!(scene.forwarder.totals().bytes_out, 0);
    }
}

#[tokio::test]
async fn a_name_of_this_host_is_no_way_around_the_policy() {
    let echo = echo().await;
    for (allow, status) in [(None, "403"), (Some("127.0.0.1/32"), "200")] {
        let guarded = Guarded {
            network: host(),
            policy: Policy {
                allow: allow.into_iter().map(|it| it.parse().unwrap()).collect(),
                ..Policy::default()
            },
            is_trusting: false,
        };
        let service = Service::HttpConnect(None);
        let far = Arc::new(guarded);
        let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
        for name in ["localhost", "a.localhost"] {
            let mut client = scene.connect().await;
            let request = format!("CONNECT {name}:{} HTTP/1.1\r\n\r\n", echo.port());
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = answer(&mut client).await;
            assert_eq!(answer.split(' ').nth(1), Some(status), "{name}");
        }
    }
}

#[tokio::test]
async fn a_name_that_is_denied_is_looked_up_once_a_second_and_each_datagram_is_counted() {
    let counting = Arc::new(Counting {
        named: named(vec![loopback()]),
        lookups: AtomicUsize::new(0),
    });
    let network: Arc<dyn Network> = Arc::clone(&counting) as _;
    let guarded = Guarded {
        network,
        policy: Policy::default(),
        is_trusting: false,
    };
    let service = Service::Socks5(None);
    let scene = Scene::with(service, Vec::new(), Limits::default(), Arc::new(guarded)).await;
    let (_control, relay) = associate(&scene).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    let header = new_udp_header(("name.example", 80)).unwrap();
    tokio::time::pause();
    for (count, lookups) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)] {
        if count == 4 {
            tokio::time::advance(RETRY).await;
        }
        client.send_to(&header, relay).await.unwrap();
        scene.until_refused(Refusal::Forbidden, count).await;
        assert_eq!(counting.lookups.load(Ordering::Relaxed), lookups);
    }
    assert_eq!(scene.forwarder.totals().dropped, 5);
}

/// A network that counts look-ups.
#[derive(Debug)]
struct Counting {
    named: Named,
    lookups: AtomicUsize,
}

impl Network for Counting {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.named.resolve(name, port)
    }

    sockets_of_the_host!();
}
