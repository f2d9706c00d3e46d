//! Delays restoration while another program keeps removing the same things.

use std::time::Duration;

use tokio::time::Instant;

use crate::change::What;

/// The pause after the first restoration.
const SHORTEST: Duration = Duration::from_millis(100);

/// Longest pause between attempts at a change that keeps packets in the tunnel.
const LONGEST_OF_GUARDS: Duration = Duration::from_secs(1);
/// Longest pause between attempts at another change of the host.
const LONGEST: Duration = Duration::from_secs(60);

/// The fixed pause of a kill switch, which is open meanwhile.
const OF_KILL_SWITCH: Duration = Duration::from_millis(20);

/// The pauses before each kind of change is restored.
#[derive(Debug)]
pub(crate) struct Backoffs {
    kill_switch: Backoff,
    guards: Backoff,
    others: Backoff,
}

impl Default for Backoffs {
    fn default() -> Self {
        Self {
            kill_switch: Backoff::new(OF_KILL_SWITCH, OF_KILL_SWITCH),
            guards: Backoff::new(SHORTEST, LONGEST_OF_GUARDS),
            others: Backoff::new(SHORTEST, LONGEST),
        }
    }
}

impl Backoffs {
    /// The earliest time at which it may be restored; `None` if there is no pause.
    pub(crate) fn earliest(&mut self, what: &What) -> Option<Instant> {
        self.of(what).earliest()
    }

    /// Records changes that were restored together.
    pub(crate) fn restored(&mut self, all: &[What], now: Instant) {
        let is_guard = |what: &What| what.guards() && !what.is_kill_switch();
        let kinds: [&dyn Fn(&What) -> bool; 3] =
            [&What::is_kill_switch, &is_guard, &|what| !what.guards()];
        for kind in kinds {
            if let Some(what) = all.iter().find(|what| kind(what)) {
                self.of(what).restored(now);
            }
        }
    }

    /// Records that nothing could be restored; returns the time of the next attempt, which is soon if there is a kill
    /// switch.
    pub(crate) fn failed(&mut self, has_kill_switch: bool, now: Instant) -> Option<Instant> {
        let backoff = match has_kill_switch {
            true => &mut self.guards,
            false => &mut self.others,
        };
        backoff.restored(now);
        backoff.earliest()
    }

    fn of(&mut self, what: &What) -> &mut Backoff {
        if what.is_kill_switch() {
            &mut self.kill_switch
        } else if what.guards() {
            &mut self.guards
        } else {
            &mut self.others
        }
    }
}

/// Pauses that double while others keep interfering, up to the longest.
#[derive(Debug)]
struct Backoff {
    shortest: Duration,
    longest: Duration,
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            last: None,
        }
    }

    /// The earliest time of the next restoration; `None` if there is no pause.
    fn earliest(&self) -> Option<Instant> {
        self.last.map(|(at, pause)| at + pause)
    }

    /// Records a restoration.
    fn restored(&mut self, now: Instant) {
        let pause = match self.last {
            // There was no interference for a while, so this is a new incident.
            Some((at, pause)) if now < at + pause * 4 => (pause * 2).min(self.longest),
            _ => self.shortest,
        };
        self.last = Some((now, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_peace() {
        let mut backoff = Backoff::new(SHORTEST, LONGEST);
        let mut now = Instant::now();
        assert_eq!(backoff.earliest(), None);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            backoff.restored(now);
            let pause = backoff.earliest().unwrap() - now;
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses[..3], [1, 2, 4].map(|n| SHORTEST * n));
        assert_eq!(pauses[11], LONGEST);
        backoff.restored(now + LONGEST * 4);
        assert_eq!(backoff.earliest(), Some(now + LONGEST * 4 + SHORTEST));
    }

    #[test]
    fn a_kill_switch_never_waits_longer_than_at_first_and_a_guard_a_second_at_most() {
        let mut backoffs = Backoffs::default();
        let mut now = Instant::now();
        for _ in 0..12 {
            let mut guards = None;
            for backoff in [&mut backoffs.kill_switch, &mut backoffs.guards] {
                backoff.restored(now);
                guards = backoff.earliest();
            }
            assert_eq!(backoffs.kill_switch.earliest(), Some(now + OF_KILL_SWITCH));
            now = guards.unwrap();
        }
        let guard = &mut backoffs.guards;
        guard.restored(now);
        assert_eq!(guard.earliest(), Some(now + LONGEST_OF_GUARDS));
        let mut failed = now;
        for _ in 0..12 {
            let again = backoffs.failed(true, failed).unwrap();
            assert!(again - failed <= LONGEST_OF_GUARDS);
            failed = again;
        }
    }
}
