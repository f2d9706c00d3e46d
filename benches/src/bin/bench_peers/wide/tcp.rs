//! A TCP run by iperf3, and what the daemons used for it.

use std::time::Duration;

use convoy_lab::measure::process;
use convoy_lab::{Pid, UDP_SEGMENTATION, loss, set_feature};
use serde::Serialize;

use super::rows::{Figure, Stream};
use super::syscalls::Count;
use super::way::{Way, of_both};
use crate::iperf::{self, Load, Received};
use crate::turn::VETH;

/// How long a run is in which system calls are counted: counting costs time, so it is one of its own.
const COUNTED: Duration = Duration::from_secs(1);
const LOST_PERCENT: f64 = 1.0;
/// What lets a veth take batches uncut: of tunnels, and of TCP without one.
const SEGMENTATION: [&str; 2] = [UDP_SEGMENTATION, "tx-tcp-segmentation"];

/// A run, as it was.
#[derive(Debug, Default, Serialize)]
pub(super) struct Run {
    bytes: u64,
    gbps: f64,
    /// Of both daemons; none beside a tunnel of processes.
    cpu_seconds: Option<f64>,
    /// The greater daemon's, from the run's start on.
    peak_memory_bytes: Option<u64>,
    /// Of both daemons, in a run of its own.
    syscalls: Option<u64>,
    /// What arrived in that.
    bytes_while_counted: Option<u64>,
}

impl Run {
    /// Of the time and the calls, for a gigabyte that arrived.
    pub(super) fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => Some(self.gbps),
            Figure::Cpu => Some(self.cpu_seconds? / (self.bytes as f64 / 1e9)),
            Figure::Syscalls => {
                Some(self.syscalls? as f64 / 1e3 / (self.bytes_while_counted? as f64 / 1e9))
            }
            Figure::Memory => Some(self.peak_memory_bytes? as f64 / 1e6),
        }
    }
}

/// Runs `stream` for `window`, and again for its system calls; where those cannot be counted, `note`
/// hears why.
pub(super) fn run(
    way: &mut Way<'_>,
    stream: Stream,
    window: Duration,
    note: impl FnOnce(anyhow::Error),
) -> anyhow::Result<Run> {
    if stream != Stream::Lossy {
        return measure(way, stream, window, note);
    }
    // Lost are single datagrams, as on a wire, and not batches.
    impose(way, LOST_PERCENT, false)?;
    let outcome = measure(way, stream, window, note);
    impose(way, 0.0, true)?;
    outcome
}

fn impose(way: &Way<'_>, percent: f64, uncut: bool) -> anyhow::Result<()> {
    for namespace in [way.left(), way.right()] {
        for feature in SEGMENTATION {
            namespace.run(|| set_feature(VETH, feature, uncut))??;
        }
        if percent > 0.0 {
            loss::lose_arriving(namespace, VETH, percent)?;
        } else {
            loss::lose_nothing(namespace)?;
        }
    }
    Ok(())
}

fn measure(
    way: &Way<'_>,
    stream: Stream,
    window: Duration,
    note: impl FnOnce(anyhow::Error),
) -> anyhow::Result<Run> {
    let Some(daemons) = way.daemons() else {
        let Received { bytes, gbps } = send(way, stream, window)?;
        return Ok(Run {
            bytes,
            gbps,
            ..Run::default()
        });
    };
    of_both(daemons, process::forget_peak_memory)?;
    let before = cpu_seconds(daemons)?;
    let Received { bytes, gbps } = send(way, stream, window)?;
    // All bytes of the run are counted, so all of its CPU time is.
    let cpu_seconds = cpu_seconds(daemons)? - before;
    let [left, right] = of_both(daemons, process::peak_memory)?;
    let counted = count(way, stream, daemons).map_err(note).ok();
    Ok(Run {
        bytes,
        gbps,
        cpu_seconds: Some(cpu_seconds),
        peak_memory_bytes: Some(left.max(right)),
        syscalls: counted.map(|(calls, _)| calls),
        bytes_while_counted: counted.map(|(_, bytes)| bytes),
    })
}

fn count(way: &Way<'_>, stream: Stream, daemons: [Pid; 2]) -> anyhow::Result<(u64, u64)> {
    let count = Count::start(daemons)?;
    let received = send(way, stream, COUNTED)?;
    Ok((count.finish()?, received.bytes))
}

fn send(way: &Way<'_>, stream: Stream, window: Duration) -> anyhow::Result<Received> {
    let load = match stream {
        Stream::Up | Stream::Lossy => Load::Up,
        Stream::Down => Load::Down,
        Stream::EightUp => Load::EightUp,
        Stream::EightDown => Load::EightDown,
    };
    iperf::run(way.left(), way.right(), way.via(), load, window)
}

/// Of both since their start.
fn cpu_seconds(daemons: [Pid; 2]) -> anyhow::Result<f64> {
    let [left, right] = of_both(daemons, process::cpu_time)?;
    Ok((left + right).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_those_of_the_run_in_which_they_were_counted() {
        let run = Run {
            bytes: 2_000_000_000,
            gbps: 8.0,
            cpu_seconds: Some(5.0),
            peak_memory_bytes: Some(24_000_000),
            syscalls: Some(30_000),
            bytes_while_counted: Some(500_000_000),
        };
        let expected = [Some(8.0), Some(2.5), Some(60.0), Some(24.0)];
        assert_eq!(Figure::ALL.map(|figure| run.figure(figure)), expected);
        let bare = Run {
            gbps: 20.0,
            ..Run::default()
        };
        let expected = [Some(20.0), None, None, None];
        assert_eq!(Figure::ALL.map(|figure| bare.figure(figure)), expected);
    }
}
