//! Checks that a flood of initiations with a peer's own address does not keep that peer from completing handshakes.

use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::LabError;
use convoy_lab::flood::Datagrams;
use serde::Serialize;

use super::beside;
use super::scene::Scene;
use crate::table;
use crate::tunnel::Stand;

/// Rates in datagrams per second, and the seconds within which the peer must have a session.
const RATES: [(u32, f64); 2] = [(20_000, 6.0), (50_000, 11.0)];
/// Handshakes at each rate.
const TRIES: usize = 10;

/// The attempts at one rate.
#[derive(Serialize)]
pub(super) struct Lockout {
    /// Datagrams per second, half of them with a wrong MAC2.
    rate: u32,
    /// Datagrams per second that the generator sent.
    sent: f64,
    /// Seconds from the peer's first packet to its answer.
    seconds: Vec<f64>,
    /// Time limit of each handshake in seconds.
    must: f64,
}

impl Lockout {
    pub(super) fn at_each_rate(scene: &mut Scene) -> anyhow::Result<Vec<Self>> {
        let datagrams = Datagrams::with_and_without_mac2(&scene.captured.initiations);
        let Scene { stand, forging, .. } = scene;
        let mut at = |(rate, must)| {
            let (seconds, flooded) = beside(forging, &datagrams, rate, || {
                // The daemon is under load before the first attempt.
                thread::sleep(Duration::from_secs(1));
                (0..TRIES).map(|_| handshake(stand)).collect()
            })?;
            Ok(Self {
                rate,
                sent: flooded.datagrams as f64 / flooded.seconds,
                seconds,
                must,
            })
        };
        RATES.into_iter().map(&mut at).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let seconds: Vec<_> = sorted.iter().map(|it| format!("{it:.1}")).collect();
        vec![
            format!("{:.0}", self.sent / 1e3),
            seconds.join(" "),
            format!("≤ {}", self.must),
        ]
    }

    pub(super) fn failure(&self) -> Option<String> {
        let (kpps, must) = (self.rate / 1000, self.must);
        let is_long = self.seconds.iter().any(|seconds| *seconds > must);
        is_long.then(|| format!("at {kpps} kpps from its own address a peer waited > {must} s"))
    }
}

/// Seconds until the left daemon, which has no session at first, gets an answer through the tunnel.
fn handshake(stand: &mut Stand) -> anyhow::Result<f64> {
    let bed = stand.bed();
    let left = &bed.tunnel.left;
    // Configuring the peer again ends its session.
    left.daemon.configure(&left.config)?;
    let began = Instant::now();
    match bed.wait_until_up() {
        Ok(()) | Err(LabError::NoPassage { .. }) => Ok(began.elapsed().as_secs_f64()),
        Err(error) => Err(error.into()),
    }
}

/// A table of all rates.
pub(super) fn text(lockouts: &[Lockout]) -> String {
    if lockouts.is_empty() {
        return String::new();
    }
    let head = "forged, kpps | seconds to a handshake | limit";
    let table = table::markdown(head, lockouts.iter().map(Lockout::cells));
    format!("\nHandshakes of a peer whose own address the flood forges:\n\n{table}")
}
