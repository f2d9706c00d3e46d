//! UDP at a constant rate: packets received, and the highest rate with little loss.
//!
//! Both generators have a higher priority than the daemons, as if the load came from another machine; otherwise a program
//! that needs much CPU time would be offered less.

use std::time::Duration;

use anyhow::{Context as _, Result};
use convoy_lab::measure::{Attempt, Range, Trial, UdpLoad, rate_that_half_pass};

use super::{Found, Stand};

/// Length of a search probe: long enough that queues hide no loss, short enough for many probes.
const PROBE: Duration = Duration::from_millis(500);
/// Search range without a known rate.
const RATES: Range = Range {
    start: 64_000.0,
    lowest: 1_000.0,
    highest: 2_000_000.0,
};
/// A curve's rates, in thousands of packets per second, and the length of its points.
const CURVE_KPPS: [f64; 8] = [25.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0, 600.0];
const POINT: Duration = Duration::from_millis(400);
/// A curve ends after this many consecutive points that lose half of the packets or that the generator misses.
const USELESS_POINTS: usize = 2;

/// A rate asked for in kpps, and what became of it.
type Point = (f64, Trial);

impl Stand {
    pub(super) fn udp_offered(&mut self, payload: usize, kpps: f64) -> Result<Found> {
        let trial = self.probe(payload, kpps, PROBE)?;
        Ok(Found {
            is_limited: !trial.held_rate,
            ..Found::of([("kpps", trial.arrived_pps() / 1e3)])
        })
    }

    /// Searches, from the rate found before on, for the one at which half of the probes lose at most 1 %.
    pub(super) fn udp_rate(&mut self, payload: usize) -> Result<Found> {
        let key = (self.contender.name.clone(), payload);
        let known = self.known_pps.get(&key).copied();
        let found = rate_that_half_pass(RATES, known, |Attempt { rate_pps, .. }| {
            self.probe(payload, rate_pps / 1e3, PROBE)
        })?;
        if let Some(found) = found {
            self.known_pps.insert(key, found.rate_pps);
        }
        // More than 1 % loss at every rate counts as a rate of zero.
        let kpps = found.map_or(0.0, |found| found.rate_pps / 1e3);
        Ok(Found {
            is_limited: found.is_some_and(|found| found.generator_limited),
            ..Found::of([("kpps", kpps)])
        })
    }

    pub(super) fn udp_curve(&mut self, payload: usize) -> Result<Found> {
        let mut points = Vec::new();
        for kpps in CURVE_KPPS {
            if is_over(&points) {
                break;
            }
            points.push((kpps, self.probe(payload, kpps, POINT)?));
        }
        let arrived = |(_, trial): &Point| trial.arrived_pps() / 1e3;
        let most = points.iter();
        let most = most.max_by(|a, b| arrived(a).total_cmp(&arrived(b)));
        let most = most.context("nothing was sent")?;
        Ok(Found {
            is_limited: !most.1.held_rate,
            curve: points.iter().map(|it| (it.0, arrived(it))).collect(),
            ..Found::of([("kpps", arrived(most))])
        })
    }

    /// Sends packets of `payload` bytes at this rate to the far end.
    fn probe(&mut self, payload: usize, kpps: f64, duration: Duration) -> Result<Trial> {
        let load = UdpLoad {
            payload,
            rate_pps: kpps * 1e3,
            duration,
        };
        let (via, ends) = (self.via(), self.ends());
        ends.begin_udp(via, load)?;
        let sent = ends.finish_sending_udp(load)?;
        Ok(Trial::of(sent, ends.finish_receiving_udp()?))
    }
}

fn is_over(points: &[Point]) -> bool {
    let last = &points[points.len().saturating_sub(USELESS_POINTS)..];
    let is_lossy = last.iter().all(|(_, trial)| trial.loss > 0.5);
    let is_slow = last.iter().all(|(_, trial)| !trial.held_rate);
    last.len() == USELESS_POINTS && (is_lossy || is_slow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(sent_kpps: f64, arrived_kpps: f64, held_rate: bool) -> Point {
        let trial = Trial {
            sent_pps: sent_kpps * 1e3,
            held_rate,
            loss: 1.0 - arrived_kpps / sent_kpps,
            receiver_loss: 0.0,
        };
        (sent_kpps, trial)
    }

    #[test]
    fn a_curve_ends_after_two_points_that_show_nothing_new() {
        let mut points = vec![point(100.0, 99.0, true), point(200.0, 99.0, true)];
        assert!(!is_over(&points), "one point may be bad luck");
        points.push(point(300.0, 100.0, true));
        assert!(is_over(&points) && is_over(&[point(310.0, 310.0, false); 2]));
    }
}
