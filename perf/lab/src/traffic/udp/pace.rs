//! An absolute schedule: how many packets are due, and when the next ones are.

use std::time::Duration;

/// Shortest wait between two turns. At 200,000 packets a second a turn sends 40: few enough not to
/// overrun a queue, many enough that a wake-up, which costs as much as 10 packets, is not paid for
/// each.
const TURN: Duration = Duration::from_micros(200);
/// A burst never holds more than what the schedule has in this time.
const LONGEST_BURST: Duration = Duration::from_millis(1);
/// A sender that was held up catches up at this multiple of its rate.
const CATCH_UP: f64 = 2.0;

/// The schedule of one flow, on a clock that begins with its first packet.
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

    /// Packets to send at `now`.
    pub(crate) fn due(&mut self, now: Duration) -> u64 {
        let scheduled = (now.as_secs_f64() * self.rate_pps) as u64 + 1;
        let behind = scheduled.min(self.packets).saturating_sub(self.sent);
        let since_last = now.saturating_sub(self.last_turn);
        self.last_turn = now;
        behind.min(self.burst(since_last))
    }

    /// Counts packets that were sent.
    pub(crate) fn sent(&mut self, packets: u64) {
        self.sent += packets;
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.sent >= self.packets
    }

    /// When the next turn is.
    pub(crate) fn next_turn(&self, now: Duration) -> Duration {
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

    fn drive(pace: &mut Pace, from: Duration, until: Duration) -> (u64, u64) {
        let (mut now, mut total, mut largest) = (from, 0, 0);
        while now < until && !pace.is_complete() {
            let due = pace.due(now);
            pace.sent(due);
            total += due;
            largest = largest.max(due);
            now = pace.next_turn(now);
        }
        (total, largest)
    }

    #[test]
    fn a_schedule_is_met_in_small_bursts() {
        let mut pace = Pace::new(200_000.0, 200_000);
        let (total, largest) = drive(&mut pace, Duration::ZERO, Duration::from_secs(1));
        assert!((199_900..=200_000).contains(&total), "{total}");
        assert!(largest <= 41, "{largest}");
    }

    #[test]
    fn a_slow_flow_sends_one_packet_a_turn() {
        let mut pace = Pace::new(100.0, 100);
        let (total, largest) = drive(&mut pace, Duration::ZERO, Duration::from_secs(2));
        assert_eq!((total, largest), (100, 1));
    }

    #[test]
    fn a_held_up_sender_catches_up_without_a_long_burst() {
        let mut pace = Pace::new(100_000.0, 100_000);
        pace.sent(pace.packets / 2);
        let held_up_until = Duration::from_millis(520);
        let due = pace.due(held_up_until);
        assert_eq!(due, 100);
        pace.sent(due);
        let caught_up = Duration::from_millis(560);
        drive(&mut pace, held_up_until + TURN, caught_up);
        let scheduled = caught_up.as_secs_f64() * 100_000.0;
        assert!(pace.sent as f64 > scheduled - 20.0, "{}", pace.sent);
    }
}
