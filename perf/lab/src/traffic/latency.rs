//! Round-trip time: small UDP datagrams and an echo.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::agent::Events;
use super::error::Doing as _;
use super::{Event, LatencyReport, PingJob, Scope, TrafficError};

const PROBE_BYTES: usize = 32;
/// How often an idle echo looks whether it is still wanted.
const END_CHECK: Duration = Duration::from_millis(250);
/// How long the last probes are waited for: queues of a second have been seen under load.
const LAST_PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// Answers probes from a thread of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Echo {
    done: Arc<AtomicBool>,
}

impl Echo {
    pub(super) fn start<W: Write>(
        scope: &Scope,
        events: &mut Events<W>,
    ) -> Result<Self, TrafficError> {
        let socket = UdpSocket::bind(scope.bind()).doing("bind the echo")?;
        socket
            .set_read_timeout(Some(END_CHECK))
            .doing("bind the echo")?;
        let port = socket.local_addr().doing("bind the echo")?.port();
        let (scope, done) = (*scope, Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&done);
        thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || answer(&socket, scope, &seen))
            .doing("start the echo's thread")?;
        events.send(&Event::Ready { port })?;
        Ok(Self { done })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn answer(socket: &UdpSocket, scope: Scope, done: &AtomicBool) {
    let mut probe = [0; PROBE_BYTES];
    while !done.load(Ordering::Relaxed) {
        // Errors are timeouts and ICMP messages about earlier answers: the prober counts losses.
        if let Ok((length, from)) = socket.recv_from(&mut probe)
            && scope.admits(from)
        {
            let _ = socket.send_to(&probe[..length], from);
        }
    }
}

/// Sends one probe each interval and reports the round-trip times.
pub(super) fn ping<W: Write>(job: &PingJob, events: &mut Events<W>) -> Result<(), TrafficError> {
    let any: SocketAddr = match job.to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).doing("bind the probe")?;
    socket.connect(job.to).doing("connect the probe")?;

    let interval = Duration::from_millis(job.interval_ms.max(1));
    let probes = (job.seconds / interval.as_secs_f64()).ceil().max(1.0) as u64;
    let mut round_trips = Vec::new();
    let epoch = Instant::now();
    for number in 0..probes {
        // A probe that is refused (no route yet, no echo yet) is one that did not come back.
        let _ = socket.send(&probe(number, epoch.elapsed()));
        let next = epoch + interval * (number as u32 + 1);
        collect(&socket, epoch, next, probes, &mut round_trips)?;
    }
    let patience = epoch + interval * (probes as u32) + LAST_PROBE_PATIENCE;
    collect(&socket, epoch, patience, probes, &mut round_trips)?;
    events.send(&Event::Latency(summary(probes, round_trips)))
}

fn probe(number: u64, sent: Duration) -> [u8; PROBE_BYTES] {
    let mut probe = [0; PROBE_BYTES];
    probe[..8].copy_from_slice(&number.to_le_bytes());
    probe[8..16].copy_from_slice(&(sent.as_nanos() as u64).to_le_bytes());
    probe
}

/// Takes answers until `until`, or until all probes are back.
fn collect(
    socket: &UdpSocket,
    epoch: Instant,
    until: Instant,
    probes: u64,
    round_trips: &mut Vec<Duration>,
) -> Result<(), TrafficError> {
    let mut answer = [0; PROBE_BYTES];
    while (round_trips.len() as u64) < probes {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket
            .set_read_timeout(Some(left))
            .doing("set the probe's timeout")?;
        match socket.recv(&mut answer) {
            Ok(PROBE_BYTES) => {
                let sent = u64::from_le_bytes(answer[8..16].try_into().unwrap_or_default());
                let sent = Duration::from_nanos(sent);
                round_trips.push(epoch.elapsed().saturating_sub(sent));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => thread::sleep(left),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn summary(sent: u64, mut round_trips: Vec<Duration>) -> LatencyReport {
    round_trips.sort_unstable();
    let milliseconds = |share| Some(quantile(&round_trips, share)?.as_secs_f64() * 1e3);
    LatencyReport {
        sent,
        received: round_trips.len() as u64,
        median_ms: milliseconds(0.5),
        p99_ms: milliseconds(0.99),
    }
}

/// Of what is in order; none of nothing.
pub(super) fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    let index = (share * last as f64).round() as usize;
    sorted.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_probes_that_returned() {
        let report = summary(200, (1..=101).map(Duration::from_millis).collect());
        assert_eq!(report.sent, 200);
        assert_eq!(report.received, 101);
        assert_eq!(report.median_ms, Some(51.0));
        assert_eq!(report.p99_ms, Some(100.0));
    }

    #[test]
    fn no_answer_has_no_median() {
        assert_eq!(summary(3, Vec::new()).median_ms, None);
    }
}
