//! Round trips through the tunnel beside the load, by the second in which they began.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, UdpSocket},
    sync::{Mutex, PoisonError},
    thread::Scope,
    time::Duration,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{bed::Bed, flow::Load};

/// Between two probes of a spoke.
const INTERVAL: f64 = 0.010;
/// How long an answer is waited for, in seconds; a later one is lost.
pub(crate) const PATIENCE: u64 = 3;
const PROBE_BYTES: usize = 32;
/// How often a silent socket looks whether the load has ended.
const END_CHECK: Duration = Duration::from_millis(250);

/// The probes of all spokes, by the second in which they were sent.
#[derive(Default)]
pub(crate) struct Probes(Mutex<BTreeMap<u64, Second>>);

#[derive(Default)]
struct Second {
    sent: u64,
    round_trips_ms: Vec<f64>,
}

/// The probes of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// None where nothing came back.
    pub(crate) median_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

impl Probes {
    /// Starts the probe of a spoke, and the hub's echo for it.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        load: &'scope Load,
        bed: &Bed,
        number: usize,
        spoke: u8,
    ) -> anyhow::Result<()> {
        let address = SocketAddr::new(bed.hub_address(spoke), 0);
        let echo = bed.hub.namespace.run(|| UdpSocket::bind(address))?;
        let echo = echo.context("bind the echo")?;
        let to = echo.local_addr().context("bind the echo")?;
        let unspecified: SocketAddr = if to.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0; 8], 0).into()
        };
        let open = || {
            let socket = UdpSocket::bind(unspecified)?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(END_CHECK))?;
            socket.try_clone().map(|other| (socket, other))
        };
        let probe = bed.spokes[number].namespace.run(open)?;
        let (sender, receiver) = probe.context("open the probe")?;
        echo.set_read_timeout(Some(END_CHECK))?;
        scope.spawn(move || answer(&echo, load));
        scope.spawn(move || self.send(&sender, load));
        scope.spawn(move || self.receive(&receiver, load));
        Ok(())
    }

    /// What became of the probes of a second; they are forgotten.
    pub(crate) fn take(&self, second: u64) -> Latency {
        let mut seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = seconds.remove(&second).unwrap_or_default();
        summary(second.sent, second.round_trips_ms)
    }

    fn send(&self, socket: &UdpSocket, load: &Load) {
        let mut next = load.clock.now();
        while !load.has_ended() {
            load.clock.sleep_until(next);
            let now = load.clock.now();
            next = (next + INTERVAL).max(now);
            self.change(now, |second| second.sent += 1);
            let mut probe = [0; PROBE_BYTES];
            probe[..8].copy_from_slice(&now.to_le_bytes());
            // A probe that is refused (a peer that is away) is one that did not come back.
            let _ = socket.send(&probe);
        }
    }

    fn receive(&self, socket: &UdpSocket, load: &Load) {
        let mut answer = [0; PROBE_BYTES];
        while !load.has_ended() {
            // Errors are timeouts and ICMP messages about probes: those are missing then.
            if let Ok(PROBE_BYTES) = socket.recv(&mut answer) {
                let sent = f64::from_le_bytes(answer[..8].try_into().unwrap_or_default());
                let now = load.clock.now();
                if now - sent < PATIENCE as f64 {
                    self.change(sent, |second| {
                        second.round_trips_ms.push((now - sent) * 1e3)
                    });
                }
            }
        }
    }

    fn change(&self, at: f64, change: impl FnOnce(&mut Second)) {
        let mut seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(seconds.entry(at as u64).or_default());
    }
}

fn answer(socket: &UdpSocket, load: &Load) {
    let mut probe = [0; PROBE_BYTES];
    while !load.has_ended() {
        if let Ok((length, from)) = socket.recv_from(&mut probe) {
            let _ = socket.send_to(&probe[..length], from);
        }
    }
}

fn summary(sent: u64, mut round_trips_ms: Vec<f64>) -> Latency {
    round_trips_ms.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| {
        let last = round_trips_ms.len().checked_sub(1)?;
        let microseconds = round_trips_ms[(share * last as f64).round() as usize] * 1e3;
        Some(microseconds.round() / 1e3)
    };
    Latency {
        sent,
        lost: sent.saturating_sub(round_trips_ms.len() as u64),
        median_ms: quantile(0.5),
        p99_ms: quantile(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_in_the_second_in_which_they_were_sent() {
        let probes = Probes::default();
        for number in 0..200 {
            let at = 7.0 + f64::from(number) * INTERVAL;
            probes.change(at, |second| second.sent += 1);
            if number != 3 {
                probes.change(at, |second| second.round_trips_ms.push(f64::from(number)));
            }
        }
        let first = probes.take(7);
        assert_eq!((first.sent, first.lost), (100, 1));
        assert_eq!((first.median_ms, first.p99_ms), (Some(50.0), Some(98.0)));
        assert_eq!(probes.take(8).lost, 0);
        assert_eq!(probes.take(8), Latency::default());
    }

    #[test]
    fn nothing_that_came_back_has_no_median() {
        let latency = summary(3, Vec::new());
        assert_eq!((latency.lost, latency.median_ms), (3, None));
    }
}
