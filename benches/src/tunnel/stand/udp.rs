//! UDP at a constant rate: packets received, and the highest rate with little loss.
//!
//! The sender uses one connected socket and sends plain packets without `UDP_SEGMENT`, as applications
//! do; the receiver does not use `UDP_GRO`. Both have a higher priority than the daemons, as if the load
//! came from another machine; otherwise a program that needs much CPU time would be offered less.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::measure::{self, Attempt, Ends, Range, Trial, UdpLoad, rate_that_half_pass};

use super::{Found, Stand};
use crate::tunnel::scenes::Figure;

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
    pub(super) fn udp_offered(&mut self, payload: usize, kpps: f64) -> anyhow::Result<Found> {
        let via = self.via();
        let trial = probe(self.ends(), via, payload, kpps, PROBE)?;
        let found = Found::of([(Figure::Main, trial.arrived_pps() / 1e3)]);
        Ok(found.limited(!trial.held_rate))
    }

    pub(super) fn udp_rate(&mut self, payload: usize) -> anyhow::Result<Found> {
        let via = self.via();
        let key = (self.contender.name.clone(), payload);
        let known = self.known_pps.get(&key).copied();
        let found = highest_rate(self.ends(), via, payload, known)?;
        if let Some(found) = found {
            self.known_pps.insert(key, found.rate_pps);
        }
        // More than 1 % loss at every rate counts as a rate of zero.
        let kpps = found.map_or(0.0, |found| found.rate_pps / 1e3);
        let is_limited = found.is_some_and(|found| found.generator_limited);
        Ok(Found::of([(Figure::Main, kpps)]).limited(is_limited))
    }

    pub(super) fn udp_curve(&mut self, payload: usize) -> anyhow::Result<Found> {
        let via = self.via();
        let points = curve(self.ends(), via, payload)?;
        let curve = points
            .iter()
            .map(|(kpps, trial)| (*kpps, trial.arrived_pps() / 1e3));
        let curve: Vec<_> = curve.collect();
        let most = (0..curve.len()).max_by(|a, b| curve[*a].1.total_cmp(&curve[*b].1));
        let most = most.context("nothing was sent")?;
        let found = Found::of([(Figure::Main, curve[most].1)]);
        Ok(Found {
            curve,
            ..found.limited(!points[most].1.held_rate)
        })
    }
}

/// Searches around `known_pps` for the rate at which half of the probes lose at most 1 %.
fn highest_rate(
    ends: &mut Ends,
    via: IpAddr,
    payload: usize,
    known_pps: Option<f64>,
) -> anyhow::Result<Option<measure::Found>> {
    rate_that_half_pass(RATES, known_pps, |Attempt { rate_pps, .. }| {
        probe(ends, via, payload, rate_pps / 1e3, PROBE)
    })
}

/// Sends packets of `payload` bytes at one rate after another.
fn curve(ends: &mut Ends, via: IpAddr, payload: usize) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for kpps in CURVE_KPPS {
        if is_over(&points) {
            break;
        }
        points.push((kpps, probe(ends, via, payload, kpps, POINT)?));
    }
    Ok(points)
}

fn is_over(points: &[Point]) -> bool {
    let last = &points[points.len().saturating_sub(USELESS_POINTS)..];
    let is_lossy = last.iter().all(|(_, trial)| trial.loss > 0.5);
    let is_slow = last.iter().all(|(_, trial)| !trial.held_rate);
    last.len() == USELESS_POINTS && (is_lossy || is_slow)
}

/// Sends packets of `payload` bytes at this rate to the far end's address `via`.
fn probe(
    ends: &mut Ends,
    via: IpAddr,
    payload: usize,
    kpps: f64,
    duration: Duration,
) -> anyhow::Result<Trial> {
    let load = UdpLoad {
        payload,
        rate_pps: kpps * 1e3,
        duration,
    };
    ends.begin_udp(via, load)?;
    let sent = ends.finish_sending_udp(load)?;
    let received = ends.finish_receiving_udp()?;
    Ok(Trial::of(sent, received))
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
