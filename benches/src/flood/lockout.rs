//! Checks that a flood of initiations with a peer's own address does not keep that peer from completing handshakes.

use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::LabError;
use convoy_lab::flood::Datagrams;
use convoy_rows::row::{Row, Run};
use convoy_rows::table::Table;

use super::scene::{Scene, beside};
use crate::tunnel::Stand;

pub(super) const SCENE: &str = "forged";
/// Rates in datagrams per second, and the seconds within which the peer must have a session.
const RATES: [(u32, f64); 2] = [(20_000, 6.0), (50_000, 11.0)];
/// Handshakes at each rate.
const TRIES: usize = 10;

pub(super) const TABLE: Table = Table {
    heading: "Handshakes of a peer whose own address the flood forges",
    shows: |row| row.scene == SCENE,
    corner: "datagrams/s",
    line: |row| row.at.unwrap_or_default().to_string(),
    column: Row::label,
    has_spread: true,
};

/// Floods at each rate, half of the datagrams with a wrong MAC2, while the peer starts handshakes.
pub(super) fn at_each_rate(scene: &mut Scene, run: &mut Run) -> anyhow::Result<()> {
    let datagrams = Datagrams::with_and_without_mac2(&scene.captured.initiations);
    let Scene { stand, forging, .. } = scene;
    for (rate, _) in RATES {
        let (seconds, flooded) = beside(forging, &datagrams, rate, || {
            // The daemon is under load before the first attempt.
            thread::sleep(Duration::from_secs(1));
            (0..TRIES)
                .map(|_| handshake(stand))
                .collect::<anyhow::Result<Vec<f64>>>()
        })?;
        let row =
            |figure, round, value| Row::new(SCENE, "peer", figure, round, value).at(rate.into());
        for (round, seconds) in (0..).zip(seconds) {
            run.push(row(("until a handshake", "s"), round, seconds));
        }
        let sent = flooded.datagrams as f64 / flooded.seconds / 1e3;
        run.push(row(("forged", "kpps"), 0, sent));
    }
    Ok(())
}

/// Judges the handshakes at each rate.
pub(super) fn failures(run: &Run) -> Vec<String> {
    let failures = RATES.iter().filter_map(|(rate, must)| {
        let own =
            |row: &&Row| row.scene == SCENE && row.unit == "s" && row.at == Some((*rate).into());
        let is_long = run.rows.iter().filter(own).any(|row| row.value > *must);
        let kpps = rate / 1000;
        is_long.then(|| format!("at {kpps} kpps from its own address a peer waited > {must} s"))
    });
    failures.collect()
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
