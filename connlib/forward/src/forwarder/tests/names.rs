//! Names that the clients of proxies send datagrams to, and connect to.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc::Receiver,
};

use convoy_network::with_batch;
use fast_socks5::new_udp_header;
use nix::sys::socket::{setsockopt, sockopt::Ipv4Tos};
use tokio::{runtime::Builder, task::spawn_blocking};

use super::{
    proxies::{answer, associate},
    *,
};
use crate::lookups::MOST_LOOKUPS;

#[tokio::test]
async fn datagrams_that_wait_for_names_are_bounded_over_all_associations() {
    let far = Arc::new(SILENT);
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
    let far = Arc::new(named(vec![server.local_addr().unwrap()]));
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

/// The host, where each look-up holds a thread, and that of a slow name until the test ends.
#[derive(Debug)]
struct Threads {
    named: Named,
    slow: Arc<Mutex<Receiver<()>>>,
    started: Arc<AtomicUsize>,
}

impl Network for Threads {
    fn takes_threads(&self) -> bool {
        true
    }

    fn resolve<'a>(&'a self, name: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        let (slow, started) = (Arc::clone(&self.slow), Arc::clone(&self.started));
        let is_slow = name == "slow.example";
        Box::pin(async move {
            let lookup = spawn_blocking(move || {
                if is_slow {
                    started.fetch_add(1, Ordering::Relaxed);
                    let _ = slow.lock().unwrap().recv();
                }
            });
            lookup.await?;
            self.named.resolve("", 0).await
        })
    }

    sockets_of_the_host!();
}

#[test]
fn a_client_that_asks_for_slow_names_leaves_threads_to_others() {
    let threads = Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MOST_LOOKUPS)
        .enable_all()
        .build()
        .unwrap();
    // Dropped before the threads, which wait for it.
    let (_end, slow) = std::sync::mpsc::channel();
    threads.block_on(async {
        let started = Arc::<AtomicUsize>::default();
        let far = Arc::new(Threads {
            named: named(vec![echo().await]),
            slow: Arc::new(Mutex::new(slow)),
            started: Arc::clone(&started),
        });
        let service = Service::HttpConnect(None);
        let scene = Scene::with(service, Vec::new(), Limits::default(), far).await;
        let mut greedy = Vec::new();
        for _ in 0..2 * MOST_LOOKUPS {
            let mut client = scene.connect().await;
            let request = b"CONNECT slow.example:80 HTTP/1.1\r\n\r\n";
            client.write_all(request).await.unwrap();
            greedy.push(client);
        }
        let most = MOST_LOOKUPS / 4;
        scene
            .until(|_| started.load(Ordering::Relaxed) >= most)
            .await;
        let other = TcpSocket::new_v4().unwrap();
        other.bind(([127, 0, 0, 2], 0).into()).unwrap();
        let mut other = within(other.connect(scene.at)).await.unwrap();
        let request = b"CONNECT fast.example:80 HTTP/1.1\r\n\r\n";
        other.write_all(request).await.unwrap();
        let answer = answer(&mut other).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(started.load(Ordering::Relaxed), most);
    });
}
