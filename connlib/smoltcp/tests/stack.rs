//! The smoltcp engine against the kernel's TCP and UDP.
//!
//! ```text
//!  Stack 10.9.0.9 ── device ── this test ── TUN wg0 10.9.0.2 of a namespace ── the kernel's sockets
//!        fd09::9              (both ways)           fd09::2
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_forward::{Forwarder, Limits, Rule, Service};
use convoy_lab::require_lab;
use convoy_namespace::{self, Namespace, hold};
use convoy_network::{
    Answer, Datagrams, Family, Host, Kernel, NameServers, Network, OpenSockets, SocketKind, Stream,
    peers::Peers,
    relay::{DEFAULT_BUFFER, Method, Relay},
};
use convoy_smoltcp::{Stack, device_pair};
use convoy_tun::{Device, Switch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UdpSocket,
    time::{Instant, timeout},
};

const DEADLINE: Duration = Duration::from_secs(60);
const LENGTH: usize = 32 << 20;

/// The test of this file that becomes a holder, and the variable that lets it.
const HOLDER: &str = "becomes_the_holder";
const MARK: &str = "CONVOY_NETSTACK_HOLDER";

#[test]
#[ignore = "started by the other tests"]
fn becomes_the_holder() {
    if env::var_os(MARK).is_some() {
        hold().unwrap();
        // The test harness has nobody to tell.
        process::exit(0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_and_the_stack_exchange_super_packets_in_both_directions() {
    let Some(scene) = Scene::new("the_kernel_and_the_stack_exchange", 1420) else {
        return;
    };
    for family in [Family::V4, Family::V6] {
        for opener in [End::Stack, End::Kernel] {
            for sender in [End::Stack, End::Kernel] {
                let (stack, kernel) = scene.connect(opener, family).await;
                let (from, to) = match sender {
                    End::Stack => (stack, kernel),
                    End::Kernel => (kernel, stack),
                };
                let before = scene.stack.counters();
                let rate = transfer(from, to).await;
                let after = scene.stack.counters();
                println!("{family:?}, {opener:?} connects, {sender:?} sends: {rate:.2} Gbit/s");
                let sent = (after.sent_bytes - before.sent_bytes) / (after.sent - before.sent);
                let received = after.received_bytes - before.received_bytes;
                let received = received / (after.received - before.received);
                let per_packet = match sender {
                    End::Stack => sent,
                    End::Kernel => received,
                };
                assert!(per_packet > 5_000, "{before:?} {after:?}");
            }
        }
    }
    scene.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_least_mtu_both_directions_work_at_the_same_time() {
    let Some(scene) = Scene::new("at_the_least_mtu", 1280) else {
        return;
    };
    for family in [Family::V4, Family::V6] {
        let (stack, kernel) = scene.connect(End::Stack, family).await;
        let (stack_read, stack_write) = tokio::io::split(stack);
        let (kernel_read, kernel_write) = tokio::io::split(kernel);
        tokio::join!(
            transfer(stack_write, kernel_read),
            transfer(kernel_write, stack_read)
        );
    }
    scene.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernels_resets_refusals_and_ends_are_understood() {
    let Some(scene) = Scene::new("the_kernels_resets", 1420) else {
        return;
    };
    let refused = scene
        .stack
        .connect(address(End::Kernel, Family::V4, 9))
        .await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    let refused = scene
        .kernel
        .connect(address(End::Stack, Family::V6, 9))
        .await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    let (mut stack, kernel) = scene.connect(End::Kernel, Family::V4).await;
    let Stream::Kernel(socket) = kernel else {
        unreachable!("it is the kernel's");
    };
    socket.set_zero_linger().unwrap();
    drop(socket);
    let error = within(stack.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let (mut stack, mut kernel) = scene.connect(End::Stack, Family::V6).await;
    kernel.shutdown().await.unwrap();
    assert_eq!(within(stack.read(&mut [0])).await.unwrap(), 0);
    stack.write_all(b"the last word").await.unwrap();
    drop(stack);
    let mut word = String::new();
    within(kernel.read_to_string(&mut word)).await.unwrap();
    assert_eq!(word, "the last word");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_any_length_arrive_at_the_other_side() {
    let Some(scene) = Scene::new("datagrams_of_any_length", 1420) else {
        return;
    };
    for family in [Family::V4, Family::V6] {
        let stack = scene.stack.datagrams(address(End::Stack, family, 0));
        let kernel = scene.kernel.datagrams(address(End::Kernel, family, 0));
        let (stack, kernel) = (stack.await.unwrap(), kernel.await.unwrap());
        let (at_stack, at_kernel) = (stack.local_addr().unwrap(), kernel.local_addr().unwrap());
        let mut buffer = vec![0; 70_000];
        for length in [0, 1, 1372, 1373, 9_000, 60_000] {
            let datagram: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            for (from, to, at) in [(&stack, &kernel, at_kernel), (&kernel, &stack, at_stack)] {
                from.send_to(&datagram, at).await.unwrap();
                let (received, _) = within(to.recv_from(&mut buffer)).await.unwrap();
                assert_eq!(buffer[..received], datagram, "{length} to {at}");
            }
        }
    }
    assert!(scene.stack.counters().reassembled > 0);
}

/// The forwarder and its clients share a thread, so that it finds whole bursts.
#[tokio::test]
async fn forwarded_bursts_are_super_packets_unless_their_datagrams_exceed_the_mtu() {
    const BURST: u64 = 20;
    let Some(scene) = Scene::new("forwarded_bursts", 1420) else {
        return;
    };
    for family in [Family::V4, Family::V6] {
        for (near, end) in [(End::Stack, End::Kernel), (End::Kernel, End::Stack)] {
            let network = scene.network(end);
            let server = network.datagrams(address(end, family, 0)).await.unwrap();
            let (_forwarder, client) = forwarded(&scene, near, &server).await;
            for length in [1300, 1372, 1393, 4000] {
                let before = scene.stack.counters();
                burst(&client, &server, BURST, length).await;
                let after = scene.stack.counters();
                let packets = match near {
                    End::Stack => after.sent - before.sent,
                    End::Kernel => after.received - before.received,
                };
                let are_super = length <= 1372;
                assert_eq!(packets < BURST, are_super, "{near:?} {family:?} {length}");
            }
        }
    }
}

/// Sends numbered datagrams through a forwarder, and receives them as answers.
async fn burst(client: &UdpSocket, server: &Datagrams, count: u64, length: usize) {
    let mut received = vec![0; 70_000];
    for number in 0..count {
        client.try_send(&vec![number as u8; length]).unwrap();
    }
    for number in 0..count {
        let (size, from) = within(server.recv_from(&mut received)).await.unwrap();
        assert_eq!(received[..size], vec![number as u8; length]);
        server.send_to(&received[..size], from).await.unwrap();
    }
    for number in 0..count {
        let size = within(client.recv(&mut received)).await.unwrap();
        assert_eq!(received[..size], vec![number as u8; length]);
    }
}

/// A forwarder from the host through one end's network to a server, and its client, whose flow is open.
async fn forwarded(scene: &Scene, through: End, server: &Datagrams) -> (Forwarder, UdpSocket) {
    let mut forwarder = Forwarder::new(
        Relay::new(DEFAULT_BUFFER, Method::Splice),
        Limits::default(),
    );
    let target = server.local_addr().unwrap().to_string();
    let rule = Rule {
        listen: vec![([127, 0, 0, 1], 0).into()],
        service: Service::Udp(target.parse().unwrap()),
        access: Vec::new(),
        peers: Arc::default(),
    };
    let host: Arc<dyn Network> = Arc::new(Kernel(Host));
    let far = scene.network(through);
    let running = forwarder.add(rule, &host, &far).await;
    let at = running.unwrap().addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(at).await.unwrap();
    client.writable().await.unwrap();
    burst(&client, server, 1, 8).await;
    (forwarder, client)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stack,
    Kernel,
}

fn address(end: End, family: Family, port: u16) -> SocketAddr {
    let text = match (end, family) {
        (End::Stack, Family::V4) => "10.9.0.9",
        (End::Stack, Family::V6) => "fd09::9",
        (End::Kernel, Family::V4) => "10.9.0.2",
        (End::Kernel, Family::V6) => "fd09::2",
    };
    SocketAddr::new(text.parse().unwrap(), port)
}

struct Scene {
    stack: Arc<Stack>,
    kernel: Arc<Kernel<Inside>>,
    _pump: Pump,
}

impl Scene {
    fn new(test: &str, mtu: u16) -> Option<Self> {
        if !require_lab(test) {
            return None;
        }
        let namespace = Namespace::start(holder(), &settings(mtu)).unwrap();
        let (device, tunnels) = device_pair().unwrap();
        let tun = namespace.tun().try_clone_to_owned().unwrap();
        let adopted = Device::adopt(tun.try_clone().unwrap()).unwrap();
        assert!(adopted.offload().tcp, "no super-packets");
        let own = stack_settings(mtu);
        Some(Self {
            stack: Arc::new(Stack::start(device, own).unwrap()),
            kernel: Arc::new(Kernel(Inside(namespace))),
            _pump: Pump::new(tun, tunnels),
        })
    }

    /// A connection: the stack's end and the kernel's.
    async fn connect(&self, opener: End, family: Family) -> (Stream, Stream) {
        let at = match opener {
            End::Stack => End::Kernel,
            End::Kernel => End::Stack,
        };
        let (near, far) = (self.network(opener), self.network(at));
        let listener = far.listen(address(at, family, 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        let (near, far) = within(async { tokio::join!(near.connect(to), listener.accept()) }).await;
        let (near, far) = (near.unwrap(), far.unwrap().0);
        match opener {
            End::Stack => (near, far),
            End::Kernel => (far, near),
        }
    }

    fn network(&self, end: End) -> Arc<dyn Network> {
        match end {
            End::Stack => Arc::clone(&self.stack) as Arc<dyn Network>,
            End::Kernel => Arc::clone(&self.kernel) as Arc<dyn Network>,
        }
    }

    async fn until_idle(&self) {
        within(async {
            while self.stack.flows() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

/// Sends [`LENGTH`] bytes and checks that they arrive; the rate in Gbit/s.
async fn transfer(
    mut from: impl AsyncWrite + Unpin + Send + 'static,
    mut to: impl AsyncRead + Unpin,
) -> f64 {
    let begun = Instant::now();
    let byte = |at: usize| (at % 65_521 % 251) as u8;
    let sending = tokio::spawn(async move {
        let mut piece = vec![0; 65_536];
        for at in (0..LENGTH).step_by(piece.len()) {
            for (index, it) in piece.iter_mut().enumerate() {
                *it = byte(at + index);
            }
            from.write_all(&piece).await.unwrap();
        }
        from.shutdown().await.unwrap();
        from
    });
    let mut piece = vec![0; 65_536];
    let mut at = 0;
    loop {
        let read = within(to.read(&mut piece)).await.unwrap();
        if read == 0 {
            break;
        }
        for (index, it) in piece[..read].iter().enumerate() {
            assert_eq!(*it, byte(at + index), "byte {}", at + index);
        }
        at += read;
    }
    assert_eq!(at, LENGTH);
    drop(sending.await.unwrap());
    LENGTH as f64 * 8e-9 / begun.elapsed().as_secs_f64()
}

/// Moves messages between a TUN and a device until it is dropped.
struct Pump {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pump {
    fn new(tun: OwnedFd, device: OwnedFd) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = [
            (tun.try_clone().unwrap(), device.try_clone().unwrap()),
            (device, tun),
        ];
        let threads = ends.map(|(from, to)| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut buffer = vec![0; 70_000];
                while !is_over.load(Ordering::Relaxed) {
                    if !is_ready(&from, PollFlags::IN) {
                        continue;
                    }
                    let Ok(length @ 1..) = rustix::io::read(&from, &mut buffer) else {
                        continue;
                    };
                    while rustix::io::write(&to, &buffer[..length])
                        .is_err_and(|error| error == rustix::io::Errno::AGAIN)
                        && !is_over.load(Ordering::Relaxed)
                    {
                        is_ready(&to, PollFlags::OUT);
                    }
                }
            })
        });
        Self {
            is_over,
            threads: threads.into(),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn is_ready(fd: impl AsFd, flags: PollFlags) -> bool {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let count = poll(&mut [PollFd::new(&fd, flags)], Some(&pause));
    count.is_ok_and(|count| count > 0)
}

/// Sockets of the namespace.
#[derive(Debug)]
struct Inside(Namespace);

impl OpenSockets for Inside {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        let is_ipv6 = family == Family::V6;
        let sockets = match kind {
            SocketKind::Tcp => self.0.tcp(is_ipv6, 1),
            SocketKind::Udp => self.0.udp(is_ipv6, 1),
        };
        let socket = sockets.unwrap().remove(0);
        Box::pin(async { Ok(socket) })
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn settings(mtu: u16) -> convoy_namespace::Settings {
    convoy_namespace::Settings {
        interface: "wg0".to_owned(),
        offload: Switch::Auto,
        addresses: ["10.9.0.2/24", "fd09::2/64"].map(prefix).to_vec(),
        mtu,
        routes: ["0.0.0.0/0", "::/0"].map(prefix).to_vec(),
        is_gateway: false,
        files: None,
    }
}

fn stack_settings(mtu: u16) -> convoy_smoltcp::Settings {
    convoy_smoltcp::Settings {
        addresses: ["10.9.0.9/24", "fd09::9/64"].map(prefix).to_vec(),
        mtu,
        names: NameServers::default(),
        peers: Arc::new(Peers::new([])),
    }
}

fn prefix(text: &str) -> (IpAddr, u8) {
    let (address, length) = text.split_once('/').unwrap();
    (address.parse().unwrap(), length.parse().unwrap())
}

fn holder() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", HOLDER, "--ignored", "--nocapture"]);
    command.env(MARK, "1");
    command
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("not in time")
}
