//! Receives a flow and counts the packets that arrive.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use super::batch::{BATCH, Inbox, socket_drops};
use crate::error::{Doing as _, Result};
use crate::traffic::{UdpLoad, UdpReceived};

const BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// A buffer of this size lets the receiver sleep between two reads without losing packets.
const ROOMY_BYTES: usize = 4 * 1024 * 1024;
/// Pause after reading everything: a wake-up per packet would take CPU time from the tunnel under test.
const NAP: Duration = Duration::from_micros(500);
/// Interval at which a receiver without packets checks the clock.
const END_CHECK: Duration = Duration::from_millis(100);
/// Time limit for the first packet.
const FIRST_PACKET_PATIENCE: Duration = Duration::from_secs(5);
/// A flow has ended if its schedule is over and it has been silent for this long.
const SILENCE: Duration = Duration::from_millis(300);
/// Time after the schedule's end in which packets that waited in queues still count.
const TAIL_PATIENCE: Duration = Duration::from_secs(2);

/// Requests a receive buffer for times in which the receiver gets no CPU: as root as large as is useful,
/// otherwise as large as `net.core.rmem_max` allows.
pub(super) fn enlarge_buffer(socket: &UdpSocket) -> Result<()> {
    setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &BUFFER_BYTES))
        .doing("set the receive buffer's size")
}

/// Receives the packets of flow `run` until all have arrived or its time is over.
pub(super) fn receive(socket: &UdpSocket, load: &UdpLoad, run: u64) -> Result<UdpReceived> {
    let timeout = socket.set_read_timeout(Some(END_CHECK));
    timeout.doing("set a socket timeout")?;
    let buffer = getsockopt(socket, sockopt::RcvBuf).doing("read the receive buffer's size")?;
    let nap = (buffer >= ROOMY_BYTES).then_some(NAP);

    let mut inbox = Inbox::new();
    let mut arrivals = Arrivals::default();
    let mut clock = Clock::start(load.duration);
    let expected = load.packets();
    while !clock.is_over(Instant::now()) && arrivals.received.packets < expected {
        match inbox.receive(socket) {
            Ok(packets) => {
                let drained = packets.len() < BATCH;
                let before = arrivals.received.packets;
                for (mark, number) in packets.into_iter().flatten() {
                    // Stragglers of an earlier flow and packets of others do not count.
                    if mark == run && number < expected {
                        arrivals.note(number);
                    }
                }
                if arrivals.received.packets > before {
                    clock.hear(Instant::now());
                }
                if let Some(nap) = nap.filter(|_| drained) {
                    thread::sleep(nap);
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno).doing("receive over UDP"),
        }
    }
    Ok(UdpReceived {
        socket_drops: socket_drops(socket).doing("read the socket's drops")?,
        ..arrivals.received
    })
}

/// Decides when a flow has ended.
struct Clock {
    begin: Instant,
    schedule: Duration,
    /// Arrival times of the first and the latest packet.
    heard: Option<(Instant, Instant)>,
}

impl Clock {
    fn start(schedule: Duration) -> Self {
        Self {
            begin: Instant::now(),
            schedule,
            heard: None,
        }
    }

    fn hear(&mut self, now: Instant) {
        self.heard.get_or_insert((now, now)).1 = now;
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some((first, last)) = self.heard else {
            return now > self.begin + FIRST_PACKET_PATIENCE;
        };
        let end = first + self.schedule;
        let is_silent = now > last + SILENCE;
        (now > end && is_silent) || now > end + TAIL_PATIENCE
    }
}

/// The packets that have arrived, one bit each.
#[derive(Default)]
struct Arrivals {
    seen: Vec<u64>,
    next: u64,
    received: UdpReceived,
}

impl Arrivals {
    /// Counts packet `number`, unless it has arrived before.
    fn note(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return;
        }
        self.seen[word] |= bit;
        self.received.packets += 1;
        self.received.reordered += u64::from(number < self.next);
        self.next = self.next.max(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_packets_count_once_and_those_behind_a_later_one_are_reordered() {
        let count = |numbers: &[u64]| {
            let mut arrivals = Arrivals::default();
            numbers.iter().for_each(|&number| arrivals.note(number));
            (arrivals.received.packets, arrivals.received.reordered)
        };
        assert_eq!(count(&[0, 1, 1, 0, 2]), (3, 0));
        assert_eq!(count(&[0, 5, 3, 4, 6]), (5, 2));
    }

    #[test]
    fn a_flow_ends_when_its_schedule_is_over_and_it_is_silent() {
        let second = Duration::from_secs(1);
        let mut clock = Clock::start(second);
        let first = clock.begin + second / 100;
        clock.hear(first);
        assert!(!clock.is_over(first + second / 2), "a pause is no end");
        clock.hear(first + second);
        assert!(!clock.is_over(first + second + SILENCE));
        assert!(clock.is_over(first + second + SILENCE * 2));
    }
}
