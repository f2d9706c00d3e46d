//! Receives a flow and counts what is missing, repeated or late.

use std::{
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, setsockopt, sockopt},
};

use super::{
    FIRST_PACKET_PATIENCE, HELLO, HELLO_INTERVAL,
    batch::{BATCH, Inbox, socket_drops},
    header,
};
use crate::traffic::{End, TrafficError, UdpJob, UdpReceived, error::Doing as _};

const BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// With this much the receiver can sleep between two reads without losing packets.
const ROOMY_BYTES: usize = 4 * 1024 * 1024;
/// When all is read: a wake-up for each packet would take CPU time from what is measured.
const NAP: Duration = Duration::from_micros(500);
/// A flow whose schedule is over and that has been silent for this long has ended.
const SILENCE: Duration = Duration::from_millis(300);
/// How long packets that waited in queues are accepted after the schedule's end.
const TAIL_PATIENCE: Duration = Duration::from_secs(2);

/// Asks for a receive buffer that outlasts being off the CPU: with root as much as is useful, else
/// what `net.core.rmem_max` allows.
pub(super) fn enlarge_buffer(socket: &UdpSocket) -> Result<(), TrafficError> {
    setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &BUFFER_BYTES))
        .doing("set the receive buffer's size")
}

/// Receives `job`'s packets until all are there or its time is over.
pub(super) fn receive(socket: &UdpSocket, job: &UdpJob) -> Result<UdpReceived, TrafficError> {
    let timeout = socket.set_read_timeout(Some(HELLO_INTERVAL));
    timeout.doing("set a socket timeout")?;
    let buffer = getsockopt(socket, sockopt::RcvBuf).doing("read the receive buffer's size")?;
    let nap = (buffer >= ROOMY_BYTES).then_some(NAP);

    let mut inbox = Inbox::new();
    let mut arrivals = Arrivals::new(job.run, job.packets());
    let mut clock = Clock::start(job.seconds);
    while !clock.is_over(Instant::now()) && !arrivals.is_complete() {
        if clock.first.is_none()
            && let End::Connect(_) = job.end
        {
            // Lost where the other end is not there yet; the next one follows.
            let _ = socket.send(&header(job.run, HELLO));
        }
        match inbox.receive(socket) {
            Ok(packets) => {
                let drained = packets.len() < BATCH;
                let before = arrivals.packets;
                let marked = packets.into_iter().flatten();
                marked.for_each(|(run, number)| arrivals.note(run, number));
                if arrivals.packets > before {
                    clock.heard(Instant::now());
                }
                if let Some(nap) = nap.filter(|_| drained) {
                    thread::sleep(nap);
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => {}
            Err(errno) => return Err(errno).doing("receive over UDP"),
        }
    }
    Ok(UdpReceived {
        packets: arrivals.packets,
        duplicates: arrivals.duplicates,
        reordered: arrivals.reordered,
        socket_drops: socket_drops(socket).doing("read the socket's drops")?,
        seconds: clock.span().as_secs_f64(),
    })
}

/// When a flow has ended.
struct Clock {
    begin: Instant,
    schedule: Duration,
    first: Option<Instant>,
    last: Instant,
}

impl Clock {
    fn start(seconds: f64) -> Self {
        let begin = Instant::now();
        Self {
            begin,
            schedule: Duration::from_secs_f64(seconds),
            first: None,
            last: begin,
        }
    }

    fn heard(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = now;
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some(first) = self.first else {
            return now > self.begin + FIRST_PACKET_PATIENCE;
        };
        let schedule_over = now > first + self.schedule;
        let silent = now > self.last + SILENCE;
        (schedule_over && silent) || now > first + self.schedule + TAIL_PATIENCE
    }

    fn span(&self) -> Duration {
        self.first.map_or(Duration::ZERO, |first| self.last - first)
    }
}

/// Which packets have arrived: one bit each.
#[derive(Default)]
struct Arrivals {
    run: u64,
    expected: u64,
    seen: Vec<u64>,
    next: u64,
    packets: u64,
    duplicates: u64,
    reordered: u64,
}

impl Arrivals {
    fn new(run: u64, expected: u64) -> Self {
        Self {
            run,
            expected,
            ..Self::default()
        }
    }

    fn note(&mut self, run: u64, number: u64) {
        if run != self.run || number >= self.expected {
            return;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.packets += 1;
        if number < self.next {
            self.reordered += 1;
        } else {
            self.next = number + 1;
        }
    }

    fn is_complete(&self) -> bool {
        self.packets == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(numbers: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::new(1, 1_000);
        for &number in numbers {
            arrivals.note(1, number);
        }
        arrivals
    }

    #[test]
    fn repeated_packets_count_once() {
        let arrivals = arrivals(&[0, 1, 1, 0, 2]);
        assert_eq!((arrivals.packets, arrivals.duplicates), (3, 2));
        assert_eq!(arrivals.reordered, 0);
    }

    #[test]
    fn a_packet_behind_a_later_one_is_reordered() {
        let arrivals = arrivals(&[0, 5, 3, 4, 6]);
        assert_eq!((arrivals.packets, arrivals.reordered), (5, 2));
    }

    #[test]
    fn packets_of_other_flows_and_absurd_numbers_are_ignored() {
        let mut arrivals = arrivals(&[1_000, u64::MAX]);
        arrivals.note(2, 0);
        assert_eq!(arrivals.packets, 0);
        assert!(arrivals.seen.is_empty());
    }

    #[test]
    fn a_flow_ends_when_its_schedule_is_over_and_it_is_silent() {
        let mut clock = Clock::start(1.0);
        let first = clock.begin + Duration::from_millis(10);
        clock.heard(first);
        let second = Duration::from_secs(1);
        assert!(!clock.is_over(first + second / 2), "a pause is no end");
        clock.heard(first + second);
        assert!(!clock.is_over(first + second + SILENCE));
        assert!(clock.is_over(first + second + SILENCE * 2));
    }
}
