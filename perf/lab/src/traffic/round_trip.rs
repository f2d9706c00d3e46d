//! Requests and answers, one in flight: what an application waits for.
//!
//! Both ends come before the daemons on the processors, so that a round trip is the network's.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::agent::Events;
use super::error::Doing as _;
use super::latency::quantile;
use super::udp::priority::Precedence;
use super::{Event, Exchange, RoundTripJob, RoundTripReport, Scope, TrafficError};

/// A request, and its answer.
pub(super) const BYTES: usize = 32;
/// The first byte of a request after which no other comes on its connection.
pub(super) const LAST: u8 = 1;
const NOT_LAST: u8 = 0;
/// A datagram that has no answer by then is lost.
const LOST: Duration = Duration::from_millis(250);
/// A connection on which nothing comes for so long has broken.
const BROKEN: Duration = Duration::from_secs(5);

/// Sends requests one after the other and reports how long their answers took.
pub(super) fn run<W: Write>(
    job: &RoundTripJob,
    scope: &Scope,
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    // Whoever calls from another host shall not have this one's processors before their owner.
    let _precedence = scope.is_namespace().then(Precedence::take);
    let begin = Instant::now();
    let deadline = begin + Duration::from_secs_f64(job.seconds);
    let tally = match job.exchange {
        Exchange::Tcp => over_one_connection(job.to, deadline)?,
        Exchange::TcpConnect => over_a_connection_each(job.to, deadline)?,
        Exchange::Udp => over_udp(job.to, deadline)?,
    };
    events.send(&Event::RoundTrips(tally.report(begin.elapsed())))
}

#[derive(Debug, Default)]
struct Tally {
    round_trips: Vec<Duration>,
    lost: u64,
}

impl Tally {
    fn report(mut self, elapsed: Duration) -> RoundTripReport {
        self.round_trips.sort_unstable();
        let microseconds = |share| {
            let found = quantile(&self.round_trips, share)?;
            Some(found.as_secs_f64() * 1e6)
        };
        RoundTripReport {
            answered: self.round_trips.len() as u64,
            lost: self.lost,
            seconds: elapsed.as_secs_f64(),
            p50_us: microseconds(0.5),
            p99_us: microseconds(0.99),
            p999_us: microseconds(0.999),
        }
    }
}

fn over_one_connection(to: SocketAddr, deadline: Instant) -> Result<Tally, TrafficError> {
    let mut stream = connect(to)?;
    let mut tally = Tally::default();
    while Instant::now() < deadline {
        let begin = Instant::now();
        ask(&mut stream, NOT_LAST)?;
        tally.round_trips.push(begin.elapsed());
    }
    Ok(tally)
}

fn over_a_connection_each(to: SocketAddr, deadline: Instant) -> Result<Tally, TrafficError> {
    let mut tally = Tally::default();
    while Instant::now() < deadline {
        let begin = Instant::now();
        let mut stream = connect(to)?;
        ask(&mut stream, LAST)?;
        drop(stream);
        tally.round_trips.push(begin.elapsed());
    }
    Ok(tally)
}

fn connect(to: SocketAddr) -> Result<TcpStream, TrafficError> {
    let doing = "connect for round trips";
    let stream = TcpStream::connect_timeout(&to, BROKEN).doing(doing)?;
    stream.set_nodelay(true).doing(doing)?;
    stream.set_read_timeout(Some(BROKEN)).doing(doing)?;
    close_at_once(&stream).doing(doing)?;
    Ok(stream)
}

/// No port waits in TIME_WAIT: a second of short connections would leave none.
fn close_at_once(stream: impl AsFd) -> nix::Result<()> {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &at_once)
}

fn ask(stream: &mut TcpStream, kind: u8) -> Result<(), TrafficError> {
    let mut message = [0; BYTES];
    message[0] = kind;
    stream.write_all(&message).doing("send a request")?;
    stream.read_exact(&mut message).doing("wait for an answer")
}

fn over_udp(to: SocketAddr, deadline: Instant) -> Result<Tally, TrafficError> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let doing = "open a socket for round trips";
    let socket = UdpSocket::bind(any).doing(doing)?;
    socket.connect(to).doing(doing)?;
    socket.set_read_timeout(Some(LOST)).doing(doing)?;
    let mut tally = Tally::default();
    let mut number = 0_u64;
    while Instant::now() < deadline {
        number += 1;
        let begin = Instant::now();
        // What is refused has no answer, and so is lost.
        let _ = socket.send(&request(number));
        if is_answered(&socket, number, begin) {
            tally.round_trips.push(begin.elapsed());
        } else {
            tally.lost += 1;
        }
    }
    Ok(tally)
}

fn request(number: u64) -> [u8; BYTES] {
    let mut request = [0; BYTES];
    request[..8].copy_from_slice(&number.to_le_bytes());
    request
}

/// Answers to earlier requests, which were given up, do not count.
fn is_answered(socket: &UdpSocket, number: u64, begin: Instant) -> bool {
    let mut answer = [0; BYTES];
    while begin.elapsed() < LOST {
        match socket.recv(&mut answer) {
            Ok(BYTES) if answer == request(number) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    false
}

/// Connections whose client is about to close them.
///
/// The answerer does not wait for that: the client's reset may get lost.
#[derive(Debug, Default)]
pub(super) struct Closing(VecDeque<TcpStream>);

impl Closing {
    const MOST: usize = 64;

    fn push(&mut self, stream: TcpStream) {
        self.0.push_back(stream);
        if self.0.len() > Self::MOST {
            self.0.pop_front();
        }
    }
}

/// Answers what comes on `stream` until it is closed, or until `closing` has it.
pub(super) fn answer_stream(
    mut stream: TcpStream,
    closing: &mut Closing,
) -> Result<(), TrafficError> {
    let doing = "answer over TCP";
    stream.set_nodelay(true).doing(doing)?;
    stream.set_read_timeout(Some(BROKEN)).doing(doing)?;
    close_at_once(&stream).doing(doing)?;
    let mut message = [0; BYTES];
    loop {
        stream.read_exact(&mut message).doing(doing)?;
        stream.write_all(&message).doing(doing)?;
        if message[0] == LAST {
            closing.push(stream);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_answered_requests() {
        let tally = Tally {
            round_trips: (1..=1_001).rev().map(Duration::from_micros).collect(),
            lost: 3,
        };
        let report = tally.report(Duration::from_secs(2));
        assert_eq!((report.answered, report.lost), (1_001, 3));
        assert_eq!(report.seconds, 2.0);
        let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-6;
        assert!(close(report.p50_us, 501.0), "{report:?}");
        assert!(close(report.p99_us, 991.0), "{report:?}");
        assert!(close(report.p999_us, 1_000.0), "{report:?}");
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_of_the_next_request() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(far.local_addr().unwrap()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let near = socket.local_addr().unwrap();
        far.send_to(&request(1), near).unwrap();
        assert!(!is_answered(&socket, 2, Instant::now()));
        far.send_to(&request(1), near).unwrap();
        far.send_to(&request(2), near).unwrap();
        assert!(is_answered(&socket, 2, Instant::now()));
    }
}
