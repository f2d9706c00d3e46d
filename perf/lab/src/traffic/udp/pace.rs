//! An absolute schedule: how many packets are due now, and when the next ones are.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_timerslack;

/// Minimum wait between two bursts. At 200,000 packets per second a burst has 40: few enough not to
/// overrun a queue, and enough to share the cost of a wake-up, which is that of about 10 packets.
const TURN: Duration = Duration::from_micros(200);
/// A burst never has more packets than the schedule in this time.
const LONGEST_BURST: Duration = Duration::from_millis(1);
/// A delayed sender catches up at this multiple of its rate.
const CATCH_UP: f64 = 2.0;

/// The schedule of one flow, on a clock that starts with its first packet.
#[derive(Debug)]
pub(crate) struct Pace {
    rate_pps: f64,
    packets: u64,
    sent: u64,
    last_turn: Duration,
}

impl Pace {
    pub(crate) fn new(rate_pps: f64, packets: u64) -> Self {
        Self {
            rate_pps,
            packets,
            sent: 0,
            last_turn: Duration::ZERO,
        }
    }

    /// Calls `send` repeatedly with the number of packets due, until all are sent or the time `is_over`;
    /// returns the elapsed time.
    pub(crate) fn drive<E: From<Errno>>(
        mut self,
        is_over: impl Fn(Duration) -> bool,
        mut send: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Duration, E> {
        // By default the kernel may delay each short sleep by 50 µs to merge wake-ups.
        set_timerslack(1)?;
        let begin = Instant::now();
        while self.sent < self.packets {
            let now = begin.elapsed();
            if is_over(now) {
                break;
            }
            send(self.take_due(now))?;
            thread::sleep(self.next_turn(now).saturating_sub(begin.elapsed()));
        }
        Ok(begin.elapsed())
    }

    /// Number of packets to send at `now`.
    fn take_due(&mut self, now: Duration) -> u64 {
        let scheduled = (now.as_secs_f64() * self.rate_pps) as u64 + 1;
        let behind = scheduled.min(self.packets).saturating_sub(self.sent);
        let since_last = now.saturating_sub(self.last_turn);
        self.last_turn = now;
        let due = behind.min(self.burst(since_last));
        self.sent += due;
        due
    }

    fn next_turn(&self, now: Duration) -> Duration {
        let next_packet = Duration::from_secs_f64(self.sent as f64 / self.rate_pps);
        next_packet.max(now + TURN)
    }

    fn burst(&self, since_last: Duration) -> u64 {
        let catching_up = since_last.mul_f64(CATCH_UP).max(TURN);
        let time = catching_up.min(LONGEST_BURST);
        ((time.as_secs_f64() * self.rate_pps) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulate(pace: &mut Pace, from: Duration, until: Duration) -> u64 {
        let (mut now, mut largest) = (from, 0);
        while now < until {
            largest = pace.take_due(now).max(largest);
            now = pace.next_turn(now);
        }
        largest
    }

    #[test]
    fn a_schedule_is_met_in_small_bursts() {
        for (rate, missing, burst) in [(200_000_u32, 100, 41), (100, 0, 1)] {
            let mut pace = Pace::new(f64::from(rate), rate.into());
            let largest = simulate(&mut pace, Duration::ZERO, Duration::from_secs(1));
            assert!(u64::from(rate) - pace.sent <= missing, "{}", pace.sent);
            assert!(largest <= burst, "{largest}");
        }
    }

    #[test]
    fn a_held_up_sender_catches_up_without_a_long_burst() {
        let mut pace = Pace::new(100_000.0, 100_000);
        pace.sent = pace.packets / 2;
        let held_up_until = Duration::from_millis(520);
        assert_eq!(pace.take_due(held_up_until), 100);
        let caught_up = Duration::from_millis(560);
        simulate(&mut pace, held_up_until + TURN, caught_up);
        let scheduled = caught_up.as_secs_f64() * 100_000.0;
        assert!(pace.sent as f64 > scheduled - 20.0, "{}", pace.sent);
    }
}
