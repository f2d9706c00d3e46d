//! UDP at a constant rate: what arrives, and the highest rate with little loss.
//!
//! Plain packets of one connected socket, as applications send them (no `UDP_SEGMENT`), and a
//! receiver without `UDP_GRO`. Both come before the daemons on the processors, as if the load came
//! from another machine: else a program that takes much CPU time would be offered less.

use std::net::IpAddr;
use std::time::Duration;

use convoy_lab::measure::{Attempt, Ends, Found, Range, Trial, UdpLoad, rate_that_half_pass};
use serde::Serialize;

/// Length of a probe of a search: long enough that queues do not hide a loss, short enough for many.
pub(crate) const PROBE: Duration = Duration::from_millis(500);
/// Of a search that finds out where to begin.
const RATES: Range = Range {
    start: 64_000.0,
    lowest: 1_000.0,
    highest: 2_000_000.0,
    step: 2.0,
    resolution: 1.2,
};

/// One rate tried, as it was.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Probe {
    pub(crate) payload: usize,
    pub(crate) asked_kpps: f64,
    pub(crate) sent_kpps: f64,
    pub(crate) arrived_kpps: f64,
    /// Share of what was sent that reached the receiver's full socket buffer.
    pub(crate) receiver_loss: f64,
    /// Whether the sender sent what was asked. Where not, `sent_kpps` counts.
    pub(crate) held_rate: bool,
}

/// Sends `payload` bytes at `rate_pps` to the far end's address `via`, for `duration`.
pub(crate) fn probe(
    ends: &mut Ends,
    via: IpAddr,
    payload: usize,
    rate_pps: f64,
    duration: Duration,
) -> anyhow::Result<Probe> {
    let load = UdpLoad {
        payload,
        rate_pps,
        duration,
    };
    ends.begin_udp(via, load)?;
    let sent = ends.finish_sending_udp(load)?;
    let received = ends.finish_receiving_udp()?;
    let kpps = |packets: u64| packets as f64 / sent.seconds / 1e3;
    let lost = sent.packets.saturating_sub(received.packets);
    Ok(Probe {
        payload,
        asked_kpps: rate_pps / 1e3,
        sent_kpps: kpps(sent.packets),
        arrived_kpps: kpps(received.packets),
        receiver_loss: received.socket_drops.min(lost) as f64 / sent.packets.max(1) as f64,
        held_rate: sent.held_rate,
    })
}

/// The highest rate with at most 1 % loss in half of the probes, looked for around `known`; and all that
/// was tried.
pub(crate) fn highest_rate(
    ends: &mut Ends,
    via: IpAddr,
    payload: usize,
    known: Option<f64>,
) -> anyhow::Result<(Option<Found>, Vec<Probe>)> {
    let mut probes = Vec::new();
    let found = rate_that_half_pass(RATES, known, |Attempt { rate_pps, .. }| {
        let probe = probe(ends, via, payload, rate_pps, PROBE)?;
        probes.push(probe);
        anyhow::Ok(trial(probe))
    })?;
    Ok((found, probes))
}

fn trial(probe: Probe) -> Trial {
    Trial {
        sent_pps: probe.sent_kpps * 1e3,
        held_rate: probe.held_rate,
        loss: (1.0 - probe.arrived_kpps / probe.sent_kpps).max(0.0),
        receiver_loss: probe.receiver_loss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_counts_by_what_was_sent_and_what_arrived() {
        let trial = trial(Probe {
            payload: 64,
            asked_kpps: 300.0,
            sent_kpps: 200.0,
            arrived_kpps: 190.0,
            receiver_loss: 0.01,
            held_rate: false,
        });
        assert_eq!(trial.sent_pps, 200_000.0);
        assert!((trial.loss - 0.05).abs() < 1e-9, "{trial:?}");
        assert!(!trial.held_rate);
    }
}
