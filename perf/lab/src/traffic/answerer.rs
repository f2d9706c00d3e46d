//! Answers the probes and requests of [`probe`](super::probe) on one port, over TCP and UDP.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::probe::{BYTES, KEPT, LAST, prepare};
use super::scope::Scope;
use crate::error::{Doing as _, Result};

/// Interval at which an idle answerer checks whether to end.
const END_CHECK: Duration = Duration::from_millis(250);
/// Limit of a thread's finished connections kept open for their clients to close. The answerer does not wait, since a
/// client's reset may be lost.
const CLOSING: usize = 4;
/// Limit of an answerer's connections that stay open.
const MOST_KEPT: usize = 16_384;

/// Threads that answer over TCP, each one connection at a time.
const TCP_THREADS: usize = 16;

/// Answers from threads of its own until dropped.
#[derive(Debug)]
pub(super) struct Answerer(Arc<AtomicBool>);

impl Answerer {
    /// Returns the answerer and its port: `port`, unless that is 0. `first`: its threads take precedence over ordinary
    /// ones.
    pub(super) fn start(scope: Scope, first: bool, port: u16) -> Result<(Self, u16)> {
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
        let kept = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..TCP_THREADS {
            let (listener, kept) = (Arc::clone(&listener), Arc::clone(&kept));
            start(Box::new(move |done| {
                answer_tcp(&listener, &kept, scope, done);
            }));
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

fn answer_tcp(
    listener: &TcpListener,
    kept: &Mutex<Vec<TcpStream>>,
    scope: Scope,
    done: &AtomicBool,
) {
    let mut closing = VecDeque::new();
    while !done.load(Ordering::Relaxed) {
        // Errors are timeouts and broken connections, which the other end notices.
        if let Ok((stream, from)) = listener.accept()
            && scope.admits(from)
            && let Ok((last, answered)) = answer_stream(stream)
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            // Another host must not use up this one's descriptors.
            if last == KEPT && scope.is_of_namespace() && kept.len() < MOST_KEPT {
                kept.push(answered);
                continue;
            }
            closing.push_back(answered);
            if closing.len() > CLOSING {
                closing.pop_front();
            }
        }
    }
}

/// Answers the requests on `stream` up to the last one, and returns that one's first byte.
fn answer_stream(mut stream: TcpStream) -> io::Result<(u8, TcpStream)> {
    prepare(&stream)?;
    let mut message = [0; BYTES];
    while ![LAST, KEPT].contains(&message[0]) {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
    Ok((message[0], stream))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, SocketAddr};

    use procfs::net::TcpState;

    use super::*;
    use crate::eventually;
    use crate::traffic::probe::hold;

    #[test]
    fn connections_to_keep_stay_open_at_both_ends_until_the_caller_closes_them() {
        let (_answerer, port) = Answerer::start(Scope::NAMESPACE, false, 0).unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // More than there are threads.
        let flows = TCP_THREADS + CLOSING + 1;
        let held = hold(to, flows as u32, Scope::NAMESPACE);
        assert_eq!(held.len(), flows);
        // A socket is listed twice if others end while the table is read.
        let open = || {
            let sockets = procfs::net::tcp().unwrap().into_iter();
            let open = sockets.filter(|it| it.state == TcpState::Established);
            let ends = open.map(|it| [it.local_address, it.remote_address]);
            let own = ends.filter(|ends| ends.contains(&to));
            own.collect::<BTreeSet<_>>().len()
        };
        assert_eq!(open(), 2 * flows);
        drop(held);
        let closed = eventually(Duration::from_secs(5), || (open() == 0).then_some(()));
        assert!(closed.is_some());
    }
}
