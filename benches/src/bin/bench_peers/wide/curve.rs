//! UDP by the rate at which it is sent: what arrives.

use std::net::IpAddr;
use std::time::Duration;

use convoy_lab::measure::Ends;
use serde::Serialize;

use crate::udp::{self, Probe};

/// In thousands of packets a second.
const RATES_KPPS: [f64; 8] = [25.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0, 600.0];
const POINT: Duration = Duration::from_millis(400);
/// A curve ends after so many points beyond which there is nothing to learn.
const USELESS_POINTS: usize = 2;
const MUCH_LOSS: f64 = 0.5;

/// Packets of one size at growing rates.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) payload: usize,
    pub(super) points: Vec<Probe>,
}

/// Sends packets of `payload` bytes to the far end's address `via`, at one rate after the other.
pub(super) fn measure(ends: &mut Ends, via: IpAddr, payload: usize) -> anyhow::Result<Curve> {
    let mut points = Vec::new();
    for rate in RATES_KPPS {
        if is_over(&points) {
            break;
        }
        points.push(udp::probe(ends, via, payload, rate * 1e3, POINT)?);
    }
    Ok(Curve { payload, points })
}

/// Most is lost, or the generator sends no faster.
fn is_over(points: &[Probe]) -> bool {
    let last = points.iter().rev().take(USELESS_POINTS);
    let is_lost = |point: &Probe| point.arrived_kpps < (1.0 - MUCH_LOSS) * point.sent_kpps;
    let loses = last.clone().filter(|point| is_lost(point)).count();
    let is_slow = last.filter(|point| !point.held_rate).count();
    loses == USELESS_POINTS || is_slow == USELESS_POINTS
}

impl Curve {
    /// Where the most arrived.
    pub(super) fn most(&self) -> Option<&Probe> {
        let points = self.points.iter();
        points.max_by(|a, b| a.arrived_kpps.total_cmp(&b.arrived_kpps))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::wide) fn point(sent_kpps: f64, arrived_kpps: f64) -> Probe {
        Probe {
            payload: 64,
            asked_kpps: sent_kpps,
            sent_kpps,
            arrived_kpps,
            receiver_loss: 0.0,
            held_rate: true,
        }
    }

    #[test]
    fn a_curve_ends_after_two_points_with_much_loss() {
        let mut points = vec![point(100.0, 99.0), point(200.0, 99.0)];
        assert!(!is_over(&points), "one point may be bad luck");
        points.push(point(300.0, 151.0));
        assert!(!is_over(&points), "they must be the last two");
        points.push(point(400.0, 150.0));
        points.push(point(600.0, 100.0));
        assert!(is_over(&points));
    }

    #[test]
    fn a_curve_ends_where_the_generator_sends_no_faster() {
        let slow = Probe {
            held_rate: false,
            ..point(310.0, 310.0)
        };
        assert!(!is_over(&[slow]));
        assert!(is_over(&[slow, slow]));
        assert!(!is_over(&[]));
    }

    #[test]
    fn the_most_that_arrived_may_be_before_the_end() {
        let points = vec![point(100.0, 90.0), point(200.0, 120.0), point(300.0, 80.0)];
        let curve = Curve {
            payload: 64,
            points,
        };
        assert_eq!(curve.most().unwrap().sent_kpps, 200.0);
    }
}
