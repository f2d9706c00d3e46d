//! Memory that idle connections and flows hold. The only test of its program, as it counts all memory that is allocated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use convoy_forward::{Forwarder, Limits, Rule, Service};
use convoy_network::{
    Host, Kernel, Network,
    relay::{DEFAULT_BUFFER, Method, Relay},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{runtime, sync::oneshot};

/// Connections, and flows, unless this process may not have the four descriptors that a connection needs.
const CONNECTIONS: usize = 8000;
const DESCRIPTORS_EACH: usize = 4;
/// The most bytes for each.
const MOST_BYTES: usize = 4096;

const LOOPBACK: &str = "127.0.0.1:0";

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller upholds the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller upholds the allocator's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn thousands_of_idle_connections_and_flows_hold_no_buffers() {
    let count = connections();
    for method in [Method::Splice, Method::Copy] {
        let held = held_by_connections(count, method);
        println!("{method:?}: {count} idle connections hold {held} bytes each");
        assert!(held <= MOST_BYTES, "{held}");
    }
    let held = held_by_flows(count);
    println!("{count} idle flows hold {held} bytes each");
    assert!(held <= MOST_BYTES, "{held}");
}

/// Bytes that each of some connections holds after it has carried a few.
fn held_by_connections(count: usize, method: Method) -> usize {
    let server = TcpListener::bind(LOOPBACK).unwrap();
    let target = server.local_addr().unwrap().to_string();
    let running = Running::start(Service::Tcp(target.parse().unwrap()), method);
    let mut ends = Vec::with_capacity(count);
    let before = ALLOCATED.load(Ordering::Relaxed);
    for _ in 0..count {
        let client = TcpStream::connect(running.at).unwrap();
        ends.push((client, server.accept().unwrap().0));
    }
    let mut bytes = [0; 8];
    for (client, _) in &mut ends {
        client.write_all(b"question").unwrap();
    }
    for (_, accepted) in &mut ends {
        accepted.read_exact(&mut bytes).unwrap();
        accepted.write_all(b"answer..").unwrap();
    }
    for (client, _) in &mut ends {
        client.read_exact(&mut bytes).unwrap();
    }
    (ALLOCATED.load(Ordering::Relaxed) - before) / count
}

/// The same for flows.
fn held_by_flows(count: usize) -> usize {
    let server = UdpSocket::bind(LOOPBACK).unwrap();
    let target = server.local_addr().unwrap().to_string();
    let running = Running::start(Service::Udp(target.parse().unwrap()), Method::Splice);
    let mut bytes = [0; 9];
    let mut exchange = || {
        let client = UdpSocket::bind(LOOPBACK).unwrap();
        client.send_to(b"question", running.at).unwrap();
        let (_, flow) = server.recv_from(&mut bytes).unwrap();
        server.send_to(b"answer", flow).unwrap();
        client.recv(&mut bytes).unwrap();
        client
    };
    // What it receives into is there from the first datagram on, once for all flows.
    exchange();
    let mut clients = Vec::with_capacity(count);
    let before = ALLOCATED.load(Ordering::Relaxed);
    clients.extend((0..count).map(|_| exchange()));
    (ALLOCATED.load(Ordering::Relaxed) - before) / count
}

/// A forwarder with one rule, in a thread of its own.
struct Running {
    at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(service: Service, method: Method) -> Self {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let forwarder = runtime.block_on(forwarder(service, method));
        let at = forwarder.rules()[0].addresses()[0];
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                stopped.await.unwrap();
                drop(forwarder);
            });
        });
        Self {
            at,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn forwarder(service: Service, method: Method) -> Forwarder {
    let host: Arc<dyn Network> = Arc::new(Kernel(Host));
    let limits = Limits {
        connections: CONNECTIONS,
        flows: CONNECTIONS + 1,
    };
    let mut forwarder = Forwarder::new(Relay::new(DEFAULT_BUFFER, method), limits);
    let rule = Rule {
        listen: vec![LOOPBACK.parse().unwrap()],
        service,
        access: Vec::new(),
        peers: Arc::default(),
    };
    forwarder.add(rule, &host, &host).await.unwrap();
    forwarder
}

fn connections() -> usize {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = (CONNECTIONS * DESCRIPTORS_EACH + 100) as u64;
    // As root, beyond the limit; otherwise up to it.
    let granted = [wanted.max(hard), hard].into_iter().find(|most| {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(*most).max(soft), *most).is_ok()
    });
    let count = CONNECTIONS.min((granted.unwrap_or(soft) as usize - 100) / DESCRIPTORS_EACH);
    if count < CONNECTIONS {
        println!("scaled down to {count} connections: {granted:?} descriptors are allowed");
    }
    count
}
