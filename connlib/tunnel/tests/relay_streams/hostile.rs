//! Servers that never help, before one that does: each is given up, and the tunnel goes on meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::{libc, sys::socket};

use super::*;

/// The pause between bytes of a server that is slow on purpose.
const DRIP: Duration = Duration::from_millis(100);

#[test]
fn a_server_that_resets_each_stream_gives_way_to_the_next() {
    gives_way(RelayTransport::Tcp, |stream, _| {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        socket::setsockopt(&stream, socket::sockopt::Linger, &linger).expect("a socket");
    });
}

#[test]
fn a_server_that_closes_the_stream_in_the_midst_of_a_frame_gives_way_to_the_next() {
    gives_way(RelayTransport::Tcp, |mut stream, _| {
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.write_all(&[1, 0x13, 0, 8, 0x21, 0x12]);
    });
}

#[test]
fn a_server_that_speaks_something_else_gives_way_to_the_next() {
    gives_way(RelayTransport::Tcp, |mut stream, _| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = stream.read(&mut [0; 1_000]);
    });
}

#[test]
fn a_server_that_never_finishes_the_handshake_of_tls_gives_way_to_the_next() {
    let identity = RelayIdentity::new("127.0.0.1").expect("a certificate");
    gives_way(RelayTransport::Tls(identity), |mut stream, is_over| {
        // A record of a handshake that says nothing, byte by byte.
        let header = [22, 3, 3, 0x40, 0, 2, 0, 0x3F, 0xFC];
        for byte in header.into_iter().chain(std::iter::repeat(0)) {
            if is_over.load(Ordering::Relaxed) || stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(DRIP);
        }
    });
}

#[test]
fn a_flood_of_frames_of_a_server_that_does_not_help_does_not_stop_the_tunnel() {
    let flood = Hostile::start(|mut stream, is_over| {
        let frames = [&[0x40, 1, 0, 8][..], &[7; 8]].concat().repeat(1_000);
        while !is_over.load(Ordering::Relaxed) && stream.write_all(&frames).is_ok() {}
    });
    let options = options(RelayTransport::Tcp);
    let (a, _b) = ends(relay(flood.address, &options));
    let c = End::start(3, &Options::default());
    a.add_peer(&c);
    c.add_peer(&a);
    let deadline = Instant::now() + LONG;
    while state(&a) != RelayState::Allocating {
        assert!(Instant::now() < deadline, "{:?}", state(&a));
        a.send(&udp(a.inner, [10, 0, 0, 2].into(), b"unanswered"));
        thread::sleep(Duration::from_millis(10));
    }
    for n in 0..50u8 {
        a.send(&udp(a.inner, c.inner, &[n; 100]));
        assert_eq!(c.receive_payload(), [n; 100]);
    }
    assert_eq!(state(&a), RelayState::Allocating);
}

/// Requires that the peer is reached by a second server.
fn gives_way(
    transport: RelayTransport,
    serve: impl Fn(TcpStream, &AtomicBool) + Send + Sync + 'static,
) {
    let hostile = Hostile::start(serve);
    let by_tcp = options(RelayTransport::Tcp);
    let server = RelayServer::start(HERE, &by_tcp).expect("a server");
    let relays = [
        relay(hostile.address, &options(transport)),
        relay(server.address, &by_tcp),
    ];
    let (a, b) = ends_by(relays.to_vec());
    reaches(&a, &b, 1);
    assert!(server.relayed() > 0);
    assert!(
        !matches!(state(&a), RelayState::Ready(_)),
        "{:?}",
        state(&a)
    );
}

/// A server that treats each stream on a thread of its own.
struct Hostile {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hostile {
    fn start(serve: impl Fn(TcpStream, &AtomicBool) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(HERE).expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            thread::scope(|scope| {
                while let Ok((stream, _)) = listener.accept()
                    && !ends.load(Ordering::Relaxed)
                {
                    let limit = Some(Duration::from_secs(1));
                    stream.set_write_timeout(limit).expect("a socket");
                    stream.set_read_timeout(limit).expect("a socket");
                    scope.spawn(|| serve(stream, &ends));
                }
            });
        });
        Self {
            address,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // Its panic would fail the test only now, after the reason.
            let _ = thread.join();
        }
    }
}
