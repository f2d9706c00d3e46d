//! Memory that idle connections hold. The only test of its program, as it counts all memory that is allocated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use convoy_netstack::{
    forward::{Forwarder, Limits, Rule, Service},
    network::{Host, Kernel, Network},
    relay::{DEFAULT_BUFFER, Method, Relay},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Connections, unless this process may not have the four descriptors that each needs.
const CONNECTIONS: usize = 8000;
const DESCRIPTORS_EACH: usize = 4;
/// The most bytes for each.
const MOST_BYTES: usize = 4096;

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
fn thousands_of_idle_connections_hold_no_buffers() {
    let count = connections();
    for method in [Method::Splice, Method::Copy] {
        let held = held_by(count, method);
        println!("{method:?}: {count} idle connections hold {held} bytes each");
        assert!(held <= MOST_BYTES, "{held}");
    }
}

/// Bytes that each of some connections holds after it has carried a few.
fn held_by(count: usize, method: Method) -> usize {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = server.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let forwarder = runtime.block_on(forwarder(target, method));
    let at = forwarder.rules()[0].addresses()[0];
    let running = std::thread::spawn(move || {
        runtime.block_on(async {
            while forwarder.totals().closed == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        });
    });
    let mut ends = Vec::with_capacity(count);
    let before = ALLOCATED.load(Ordering::Relaxed);
    for _ in 0..count {
        let client = TcpStream::connect(at).unwrap();
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
    let held = ALLOCATED.load(Ordering::Relaxed) - before;
    ends.clear();
    running.join().unwrap();
    held / count
}

async fn forwarder(target: SocketAddr, method: Method) -> Forwarder {
    let host: Arc<dyn Network> = Arc::new(Kernel(Host));
    let limits = Limits {
        connections: CONNECTIONS,
        flows: 0,
    };
    let mut forwarder = Forwarder::new(Relay::new(DEFAULT_BUFFER, method), limits);
    let rule = Rule {
        listen: vec![([127, 0, 0, 1], 0).into()],
        service: Service::Tcp(target.to_string().parse().unwrap()),
        access: Vec::new(),
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
