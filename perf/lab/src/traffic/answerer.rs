//! Who answers [`round_trip`](super::round_trip): a port over TCP and UDP.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::agent::Events;
use super::error::Doing as _;
use super::round_trip::{BYTES, Closing, answer_stream};
use super::udp::priority::Precedence;
use super::{Event, Scope, TrafficError};

/// How often an idle answerer looks whether it is still wanted.
const END_CHECK: Duration = Duration::from_millis(250);

/// Answers requests from threads of its own until it is dropped; over TCP one connection at a time.
#[derive(Debug)]
pub(super) struct Answerer {
    done: Arc<AtomicBool>,
}

impl Answerer {
    pub(super) fn start<W: Write>(
        scope: &Scope,
        events: &mut Events<W>,
    ) -> Result<Self, TrafficError> {
        let doing = "bind the answerer";
        let listener = TcpListener::bind(scope.bind()).doing(doing)?;
        let local = listener.local_addr().doing(doing)?;
        // Linux: accept(2) keeps to the receive timeout too (socket(7)).
        let check = TimeVal::milliseconds(END_CHECK.as_millis() as i64);
        setsockopt(&listener, sockopt::ReceiveTimeout, &check).doing(doing)?;
        let socket = UdpSocket::bind(local).doing(doing)?;
        socket.set_read_timeout(Some(END_CHECK)).doing(doing)?;

        let done = Arc::new(AtomicBool::new(false));
        let answerer = Self {
            done: Arc::clone(&done),
        };
        let (scope, seen) = (*scope, Arc::clone(&done));
        start("answer-tcp", &scope, move || {
            answer_tcp(&listener, scope, &seen);
        })?;
        start("answer-udp", &scope, move || {
            answer_udp(&socket, scope, &done);
        })?;
        events.send(&Event::Ready { port: local.port() })?;
        Ok(answerer)
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn start(
    name: &str,
    scope: &Scope,
    body: impl FnOnce() + Send + 'static,
) -> Result<(), TrafficError> {
    // Whoever calls from another host shall not have this one's processors before their owner.
    let comes_first = scope.is_namespace();
    let body = move || {
        let _precedence = comes_first.then(Precedence::take);
        body();
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).doing("start an answerer's thread")
}

fn answer_tcp(listener: &TcpListener, scope: Scope, done: &AtomicBool) {
    let mut closing = Closing::default();
    while !done.load(Ordering::Relaxed) {
        // Errors are timeouts, and connections that broke: whoever asks notices.
        if let Ok((stream, from)) = listener.accept()
            && scope.admits(from)
        {
            let _ = answer_stream(stream, &mut closing);
        }
    }
}

fn answer_udp(socket: &UdpSocket, scope: Scope, done: &AtomicBool) {
    let mut request = [0; BYTES];
    while !done.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut request)
            && scope.admits(from)
        {
            let _ = socket.send_to(&request[..length], from);
        }
    }
}
