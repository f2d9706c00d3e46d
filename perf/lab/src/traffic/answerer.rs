//! Answers the probes and requests of [`probe`](super::probe) on one port, over TCP and UDP.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::agent::Scope;
use super::probe::{BYTES, LAST, prepare};
use crate::error::{Doing as _, LabError};

/// How often an idle answerer checks whether to end.
const END_CHECK: Duration = Duration::from_millis(250);
/// Limit of a thread's finished connections kept open for their clients to close. The answerer does not wait, since a
/// client's reset may be lost.
const CLOSING: usize = 4;

/// Threads that answer over TCP, each one connection at a time.
const TCP_THREADS: usize = 16;

/// Answers from threads of its own until dropped.
#[derive(Debug)]
pub(super) struct Answerer(Arc<AtomicBool>);

impl Answerer {
    /// Returns the answerer and its port: `port`, unless that is 0. `first`: its threads take precedence over ordinary
    /// ones.
    pub(super) fn start(scope: Scope, first: bool, port: u16) -> Result<(Self, u16), LabError> {
        let (listener, port) = scope.listen(port, END_CHECK)?;
        let listener = Arc::new(listener);
        let socket = scope.bind_udp(port)?;
        let timeout = socket.set_read_timeout(Some(END_CHECK));
        timeout.doing("set a socket timeout")?;
        let done = Arc::new(AtomicBool::new(false));
        let start = |answer: Box<dyn FnOnce(&AtomicBool) + Send>| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                if first {
                    scope.take_precedence();
                }
                answer(&done);
            })
        };
        for _ in 0..TCP_THREADS {
            let listener = Arc::clone(&listener);
            start(Box::new(move |done| answer_tcp(&listener, scope, done)));
        }
        start(Box::new(move |done| answer_udp(&socket, scope, done)));
        Ok((Self(done), port))
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn answer_udp(socket: &UdpSocket, scope: Scope, done: &AtomicBool) {
    let mut request = [0; BYTES];
    while !done.load(Ordering::Relaxed) {
        // Errors are timeouts and ICMP messages about earlier answers: the other end counts losses.
        if let Ok((length, from)) = socket.recv_from(&mut request)
            && scope.admits(from)
        {
            let _ = socket.send_to(&request[..length], from);
        }
    }
}

fn answer_tcp(listener: &TcpListener, scope: Scope, done: &AtomicBool) {
    let mut closing = VecDeque::new();
    while !done.load(Ordering::Relaxed) {
        // Errors are timeouts and broken connections, which the other end notices.
        if let Ok((stream, from)) = listener.accept()
            && scope.admits(from)
            && let Ok(answered) = answer_stream(stream)
        {
            closing.push_back(answered);
            if closing.len() > CLOSING {
                closing.pop_front();
            }
        }
    }
}

/// Answers the requests on `stream` up to the last one.
fn answer_stream(mut stream: TcpStream) -> io::Result<TcpStream> {
    prepare(&stream)?;
    let mut message = [0; BYTES];
    while message[0] != LAST {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
    Ok(stream)
}
