//! Names that the clients of proxies send datagrams to, and connect to.

use fast_socks5::new_udp_header;
use nix::sys::socket::{setsockopt, sockopt::Ipv4Tos};

use super::{proxies::associate, *};
use crate::network::with_batch;

/// The host, where looking a name up takes for ever.
#[derive(Debug)]
struct Nameless;

impl Network for Nameless {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(std::future::pending())
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        Box::pin(async move { Kernel(Host).connect(to).await })
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        Box::pin(async move { Kernel(Host).listen(at).await })
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        Box::pin(async move { Kernel(Host).datagrams(at).await })
    }
}

#[tokio::test]
async fn datagrams_that_wait_for_names_are_bounded_over_all_associations() {
    let far = Arc::new(Nameless);
    let scene = Scene::with(Service::Socks5(None), Vec::new(), Limits::default(), far).await;
    let mut controls = Vec::new();
    let client = UdpSocket::bind(loopback()).await.unwrap();
    let header = new_udp_header(("slow.example", 53)).unwrap();
    let datagram = [&header[..], &[0; 60_000]].concat();
    for _ in 0..10 {
        let (control, relay) = associate(&scene).await;
        controls.push(control);
        client.send_to(&datagram, relay).await.unwrap();
    }
    // Half a mebibyte is what one rule may hold.
    scene.until_refused(Refusal::TooMuchWaiting, 2).await;
}

#[tokio::test]
async fn datagrams_that_wait_for_a_name_keep_their_traffic_class() {
    let server = Kernel(Host).datagrams(loopback()).await.unwrap();
    server.prepare_for_batches();
    let far = Arc::new(Named(vec![server.local_addr().unwrap()]));
    let scene = Scene::with(Service::Socks5(None), Vec::new(), Limits::default(), far).await;
    let (_control, relay) = associate(&scene).await;
    let client = UdpSocket::bind(loopback()).await.unwrap();
    setsockopt(&client, Ipv4Tos, &0xb9).unwrap();
    let header = new_udp_header(("a.example", 53)).unwrap();
    client.send_to(&header, relay).await.unwrap();
    let class = async {
        loop {
            server.readable().await.unwrap();
            let class = with_batch(|batch| {
                server.try_receive(batch).ok()?;
                batch.trains().next().map(|train| train.class())
            });
            if let Some(class) = class {
                return class;
            }
        }
    };
    assert_eq!(within(class).await, 0xb9);
}
