//! Round-trip times: probes at a fixed interval, and requests one after another, as an application sends
//! them.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::protocol::Target;
use super::scope::{Scope, connected_udp};
use super::{Exchange, LatencyReport, RoundTripReport, socks};
use crate::error::{Doing as _, Result};

/// A probe or request and its answer, in bytes.
pub(super) const BYTES: usize = 32;
/// First byte of the last request on a TCP connection.
pub(super) const LAST: u8 = 1;
const NOT_LAST: u8 = 0;
/// First byte of the only request on a TCP connection that stays open.
pub(super) const KEPT: u8 = 2;
/// Time between probes.
const INTERVAL: Duration = Duration::from_millis(10);
/// Time to wait for the last probes: queues under load can take a second.
const LAST_PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which a prober without answers checks the clock.
const END_CHECK: Duration = Duration::from_millis(100);
/// A UDP request without an answer after this time is lost.
const LOST: Duration = Duration::from_millis(250);
/// A connection that is silent for this long is broken.
const BROKEN: Duration = Duration::from_secs(5);
/// Time limit for opening the connections to keep.
const HOLDING: Duration = Duration::from_secs(6);

/// Sends one probe per interval and reports the round-trip times.
pub(super) fn ping(to: SocketAddr, duration: Duration) -> Result<LatencyReport> {
    let socket = connected_udp(to)?;
    let timeout = socket.set_read_timeout(Some(END_CHECK));
    timeout.doing("set a socket timeout")?;
    let probes = duration.div_duration_f64(INTERVAL).ceil().max(1.0) as u32;
    let mut round_trips = Vec::new();
    let epoch = Instant::now();
    let end = epoch + INTERVAL * probes + LAST_PROBE_PATIENCE;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=probes {
                // A refused probe (no route or no answerer yet) counts as lost.
                let _ = socket.send(&message(epoch.elapsed().as_nanos() as u64));
                let next = epoch + INTERVAL * number;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let mut answer = [0; BYTES];
        while round_trips.len() < probes as usize && Instant::now() < end {
            if let (Ok(BYTES), Some(sent)) = (socket.recv(&mut answer), answer.first_chunk()) {
                let sent = Duration::from_nanos(u64::from_le_bytes(*sent));
                round_trips.push(epoch.elapsed().saturating_sub(sent));
            }
        }
    });
    let received = round_trips.len() as u64;
    let [median_ms, p99_ms] = quantiles(round_trips, [0.5, 0.99], 1e3);
    Ok(LatencyReport {
        sent: probes.into(),
        received,
        median_ms,
        p99_ms,
    })
}

/// Sends requests one after another and reports the times to their answers.
pub(super) fn round_trips(
    to: Target,
    exchange: Exchange,
    duration: Duration,
    scope: Scope,
) -> Result<RoundTripReport> {
    scope.take_precedence();
    let begin = Instant::now();
    let repeat = |ask: &mut dyn FnMut(u64) -> io::Result<bool>| {
        let (mut answered, mut lost) = (Vec::new(), 0);
        while begin.elapsed() < duration {
            let asked = Instant::now();
            match ask(answered.len() as u64 + lost)? {
                true => answered.push(asked.elapsed()),
                false => lost += 1,
            }
        }
        Ok((answered, lost))
    };
    let done = match exchange {
        Exchange::Tcp => {
            connect(to).and_then(|mut stream| repeat(&mut |_| ask(&mut stream, NOT_LAST)))
        }
        Exchange::TcpConnect { at_once } => {
            in_parallel(at_once, || repeat(&mut |_| ask(&mut connect(to)?, LAST)))
        }
        Exchange::Udp => {
            let socket = connected_udp(to.to)?;
            let timeout = socket.set_read_timeout(Some(LOST));
            timeout.doing("set a socket timeout")?;
            repeat(&mut |number| Ok(is_answered(&socket, number)))
        }
    };
    let (answered, lost) = done.doing("ask for an answer")?;
    let seconds = begin.elapsed().as_secs_f64();
    let count = answered.len() as u64;
    let [p50_us, p99_us, p999_us] = quantiles(answered, [0.5, 0.99, 0.999], 1e6);
    Ok(RoundTripReport {
        answered: count,
        lost,
        seconds,
        p50_us,
        p99_us,
        p999_us,
    })
}

/// Opens connections one after another, up to the first that fails.
pub(super) fn hold(to: SocketAddr, flows: u32, scope: Scope) -> Vec<TcpStream> {
    scope.take_precedence();
    let end = Instant::now() + HOLDING;
    let one = || {
        let mut stream = connect(Target { to, proxy: None })?;
        ask(&mut stream, KEPT).map(|_| stream)
    };
    let opened = (0..flows).map_while(|_| one().ok().filter(|_| Instant::now() < end));
    opened.collect()
}

/// The times to answers, and how many requests were lost.
type Answered = (Vec<Duration>, u64);

/// Runs `ask` on this many threads, which inherit this one's precedence, and adds up.
fn in_parallel(
    threads: u32,
    ask: impl Fn() -> io::Result<Answered> + Sync,
) -> io::Result<Answered> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&ask)).collect();
        let mut all = (Vec::new(), 0);
        for thread in threads {
            let (answered, lost) = thread.join().unwrap_or_else(|it| resume_unwind(it))?;
            all.0.extend(answered);
            all.1 += lost;
        }
        Ok(all)
    })
}

fn connect(to: Target) -> io::Result<TcpStream> {
    let stream = socks::connect(to, BROKEN)?;
    prepare(&stream)?;
    Ok(stream)
}

/// Configures either end of a connection for requests. Closing it leaves no port in TIME_WAIT: a second of
/// short connections would use up all ports.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(BROKEN))?;
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    Ok(setsockopt(stream, sockopt::Linger, &at_once)?)
}

fn ask(stream: &mut TcpStream, kind: u8) -> io::Result<bool> {
    let mut message = message(kind.into());
    stream.write_all(&message)?;
    stream.read_exact(&mut message)?;
    Ok(true)
}

/// Sends request `number`. Late answers to earlier requests do not count.
fn is_answered(socket: &UdpSocket, number: u64) -> bool {
    let begin = Instant::now();
    // A refused request gets no answer, so it is lost.
    let _ = socket.send(&message(number));
    let mut answer = [0; BYTES];
    while begin.elapsed() < LOST {
        match socket.recv(&mut answer) {
            Ok(BYTES) if answer == message(number) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    false
}

fn message(mark: u64) -> [u8; BYTES] {
    let mut message = [0; BYTES];
    message[..8].copy_from_slice(&mark.to_le_bytes());
    message
}

/// Quantiles in units of which a second has `per_second`; `None` for an empty list.
fn quantiles<const N: usize>(
    mut times: Vec<Duration>,
    shares: [f64; N],
    per_second: f64,
) -> [Option<f64>; N] {
    times.sort_unstable();
    shares.map(|share| {
        let last = times.len().checked_sub(1)?;
        let found = times[(share * last as f64).round() as usize];
        Some(found.as_secs_f64() * per_second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let times = (1..=1_001).rev().map(Duration::from_millis).collect();
        let found = quantiles(times, [0.5, 0.99, 0.999], 1e3).map(|ms| ms.map(f64::round));
        assert_eq!(found, [501.0, 991.0, 1_000.0].map(Some));
        assert_eq!(quantiles(Vec::new(), [0.5], 1e3), [None]);
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_of_the_next_request() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = connected_udp(far.local_addr().unwrap()).unwrap();
        let timeout = Some(Duration::from_millis(50));
        socket.set_read_timeout(timeout).unwrap();
        let near = socket.local_addr().unwrap();
        far.send_to(&message(1), near).unwrap();
        assert!(!is_answered(&socket, 2));
        far.send_to(&message(1), near).unwrap();
        far.send_to(&message(2), near).unwrap();
        assert!(is_answered(&socket, 2));
    }
}
