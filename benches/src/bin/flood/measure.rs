//! Pairs of runs: a flood at a closed port, and the same one at the daemon's.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use convoy_lab::{
    flood::{Datagrams, Flooded},
    measure::{self, Counters, Direction, Sample, TcpLoad},
    traffic::TcpReport,
};

use crate::{
    kind::Kind,
    report::{Row, Settings},
    scene::Scene,
};

const WARMUP: Duration = Duration::from_millis(500);

/// Where a flood is aimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    ClosedPort,
    Daemon,
}

/// What one run has shown.
struct Run {
    gbps: f64,
    flooded: Flooded,
    /// CPU seconds of the right daemon a second.
    cpu: f64,
    /// What the right daemon has counted, from before the flood until it was worked off.
    counters: Counters,
}

/// Measures one kind of flood.
pub(crate) fn row(scene: &mut Scene, kind: Kind, settings: &Settings) -> anyhow::Result<Row> {
    let lines = scene.log_lines();
    let (mut closed, mut open) = (Vec::new(), Vec::new());
    let mut resident_kib = Vec::new();
    for round in 0..settings.rounds {
        scene.bed.wait_until_up()?;
        // Anew each time: sessions are renewed.
        scene.capture_data()?;
        let datagrams = kind.datagrams(&scene.captured);
        for aim in order(round) {
            let run = run(scene, &datagrams, aim, settings)?;
            match aim {
                Aim::ClosedPort => closed.push(run),
                Aim::Daemon => open.push(run),
            }
        }
        resident_kib.push(scene.resident_kib()?);
    }
    // That it has survived.
    measure::check(&mut scene.bed.tunnel)?;
    scene.bed.wait_until_up()?;
    let log_lines = scene.log_lines() - lines;
    summary(kind, &closed, &open, resident_kib, log_lines).context("nothing was measured")
}

/// Each goes first in every other round: what drifts with time then favours neither.
fn order(round: u32) -> [Aim; 2] {
    if round.is_multiple_of(2) {
        [Aim::ClosedPort, Aim::Daemon]
    } else {
        [Aim::Daemon, Aim::ClosedPort]
    }
}

fn run(
    scene: &mut Scene,
    datagrams: &Datagrams,
    aim: Aim,
    settings: &Settings,
) -> anyhow::Result<Run> {
    let before = scene.settled()?;
    let via = scene.bed.tunnelled();
    let load = TcpLoad {
        direction: Direction::Up,
        streams: 1,
        warmup: WARMUP,
        window: Duration::from_secs(settings.secs),
    };
    let rate = f64::from(settings.rate);
    let (ends, tunnel) = (&mut scene.bed.ends, &scene.bed.tunnel);
    let generator = match aim {
        Aim::ClosedPort => &mut scene.at_closed_port,
        Aim::Daemon => &mut scene.at_daemon,
    };
    let end = AtomicBool::new(false);
    let (report, cpu, flooded) = thread::scope(|scope| {
        let flood = scope.spawn(|| generator.run(datagrams, rate, &end));
        let mut transfer = || -> anyhow::Result<(TcpReport, Duration)> {
            ends.begin_tcp(via, load)?;
            let begin = measure::read(tunnel)?.right.cpu;
            let report = ends.finish_tcp(load)?;
            Ok((report, measure::read(tunnel)?.right.cpu - begin))
        };
        let transferred = transfer();
        end.store(true, Ordering::Relaxed);
        let flooded = flood
            .join()
            .map_err(|_| anyhow!("the generator panicked"))?;
        let flooded = flooded.context("send the flood")?;
        transferred.map(|(report, cpu)| (report, cpu, flooded))
    })?;
    let after = scene.settled()?;
    let counters = after.counters.zip(before.counters);
    let (after, before) = counters.context("this daemon does not tell what it counts")?;
    Ok(Run {
        gbps: report.bytes as f64 * 8e-9 / report.seconds,
        flooded,
        cpu: cpu.as_secs_f64() / report.seconds,
        counters: after.since(&before),
    })
}

fn summary(
    kind: Kind,
    closed: &[Run],
    open: &[Run],
    resident_kib: Vec<u64>,
    log_lines: usize,
) -> Option<Row> {
    let of = |runs: &[Run], figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    let gbps = |run: &Run| run.gbps;
    let sum = |count: fn(&Run) -> u64| open.iter().map(count).sum::<u64>();
    let drops = open.iter().flat_map(|run| run.counters.inbound_drops());
    let mut reasons = std::collections::BTreeMap::new();
    for (reason, count) in drops {
        *reasons.entry(reason.to_owned()).or_default() += count;
    }
    Some(Row {
        kind: kind.name(),
        brings_cookies: kind.brings_cookies(),
        ratio: Sample::of_ratios(&of(open, gbps), &of(closed, gbps))?,
        closed_gbps: Sample::of(of(closed, gbps))?,
        gbps: Sample::of(of(open, gbps))?,
        kpps: Sample::of(of(open, |run| {
            run.flooded.datagrams as f64 / run.flooded.seconds / 1e3
        }))?,
        cpu: Sample::of(of(open, |run| run.cpu))?,
        closed_cpu: Sample::of(of(closed, |run| run.cpu))?,
        sent: sum(|run| run.flooded.datagrams),
        counted: reasons.values().sum(),
        drops: reasons,
        kernel_drops: sum(|run| run.counters.kernel_drops()),
        cookies: sum(|run| run.counters.cookies_sent),
        resident_kib,
        log_lines,
    })
}
