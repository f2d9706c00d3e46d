//! The figures of each kind of flood, and whether it passes.

use std::collections::BTreeMap;

use convoy_lab::measure::Sample;
use serde::Serialize;

use super::{Kind, Run};
use crate::origin::Origin;
use crate::table;

/// The share of throughput that must be left, compared with the same flood at a closed port.
const KEPT: f64 = 0.7;
/// The share of the flood that the daemon must have received: otherwise it was spared.
const RECEIVED: f64 = 0.95;
/// The share of the rate asked for that the generator must have sent.
const HELD: f64 = 0.95;
/// By how much memory may grow from the first pair of runs to the last, in KiB.
const GROWTH_KIB: u64 = 2048;
/// Lines that both daemons may log while a kind is measured.
const LOG_LINES: usize = 10;

const LEGEND: &str = "
kept: TCP throughput beside the flood, as a share of that beside the same flood at a closed port; reached: datagrams
of the flood that the daemon has counted, by reason (--json); no room: datagrams that its socket had no room for, of
the transfer's, too; CPU: seconds a second, closed port → daemon's port; RSS: after the first and the last pair of
runs; log: lines.
";

/// A whole run.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) origin: Origin,
    pub(super) rounds: u32,
    pub(super) secs: u64,
    /// Datagrams a second.
    pub(super) rate: u32,
    pub(super) rows: Vec<Row>,
}

/// One kind of flood.
#[derive(Serialize)]
pub(super) struct Row {
    kind: String,
    #[serde(skip)]
    brings_cookies: bool,
    /// TCP throughput, daemon's port to closed port, within each pair.
    ratio: Sample,
    closed_gbps: Sample,
    gbps: Sample,
    /// Sent by the generator to the daemon's port.
    kpps: Sample,
    /// CPU seconds of the flooded daemon a second; and beside a flood at a closed port.
    cpu: Sample,
    closed_cpu: Sample,
    /// Datagrams sent to the daemon's port.
    sent: u64,
    /// Datagrams that the daemon counted as dropped, by reason, and their sum.
    drops: BTreeMap<String, u64>,
    counted: u64,
    /// Datagrams that the socket had no room for, of the transfer's, too; a train is one.
    kernel_drops: u64,
    /// Cookie replies of the daemon.
    cookies: u64,
    /// Memory of the daemon after each pair of runs.
    resident_kib: Vec<u64>,
    /// Lines that both daemons have logged.
    log_lines: usize,
}

impl Report {
    pub(super) fn text(&self) -> String {
        let Self {
            origin,
            rounds,
            secs,
            rate,
            rows,
        } = self;
        let head = [
            "flood", "kept", "closed", "Gbit/s", "kpps", "reached", "no room", "cookies", "CPU",
            "RSS KiB", "log",
        ];
        let rows = [head.map(str::to_owned)]
            .into_iter()
            .chain(rows.iter().map(Row::cells));
        let table = table::markdown(rows.map(Vec::from).collect());
        let what =
            format!("{rate} datagrams a second from 65,536 addresses, {rounds} pairs of {secs} s");
        format!("{what}\n{}\n\n{table}{LEGEND}", origin.host)
    }

    /// One line for each check that failed.
    pub(super) fn failures(&self) -> Vec<String> {
        let kpps = f64::from(self.rate) / 1e3;
        let of_row = |row: &Row| {
            let failures = row.failures(kpps).into_iter();
            failures
                .map(|failure| format!("{}: {failure}", row.kind))
                .collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

impl Row {
    pub(super) fn of(
        kind: Kind,
        closed: &[Run],
        open: &[Run],
        resident_kib: Vec<u64>,
        log_lines: usize,
    ) -> Option<Self> {
        let of =
            |runs: &[Run], figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
        let gbps = |run: &Run| run.gbps;
        let sum = |count: fn(&Run) -> u64| open.iter().map(count).sum::<u64>();
        let mut drops = BTreeMap::new();
        for (reason, count) in open.iter().flat_map(|run| run.counters.inbound_drops()) {
            *drops.entry(reason.to_owned()).or_default() += count;
        }
        Some(Self {
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
            counted: drops.values().sum(),
            drops,
            kernel_drops: sum(|run| run.counters.kernel_drops()),
            cookies: sum(|run| run.counters.cookies_sent),
            resident_kib,
            log_lines,
        })
    }

    /// For whoever watches.
    pub(super) fn line(&self) -> String {
        let Sample {
            median, min, max, ..
        } = &self.ratio;
        format!("{}: keeps {median:.2} ({min:.2}–{max:.2})", self.kind)
    }

    fn cells(&self) -> [String; 11] {
        let (first, last) = self.resident();
        [
            self.kind.clone(),
            format!(
                "{:.2} ({:.2}–{:.2})",
                self.ratio.median, self.ratio.min, self.ratio.max
            ),
            format!("{:.2}", self.closed_gbps.median),
            format!("{:.2}", self.gbps.median),
            format!("{:.1}", self.kpps.median),
            format!("{:.1} %", self.reached() * 100.0),
            self.kernel_drops.to_string(),
            self.cookies.to_string(),
            format!("{:.2}→{:.2}", self.closed_cpu.median, self.cpu.median),
            format!("{first}→{last}"),
            self.log_lines.to_string(),
        ]
    }

    fn reached(&self) -> f64 {
        self.counted as f64 / self.sent.max(1) as f64
    }

    fn resident(&self) -> (u64, u64) {
        let first = self.resident_kib.first().copied().unwrap_or(0);
        (first, self.resident_kib.last().copied().unwrap_or(first))
    }

    fn failures(&self, kpps: f64) -> Vec<String> {
        let (first, last) = self.resident();
        let (kept, reached, sent) = (self.ratio.median, self.reached(), self.kpps.median);
        let checks = [
            (
                kept < KEPT,
                format!(
                    "keeps {:.0} % of its throughput, not {:.0} %",
                    kept * 1e2,
                    KEPT * 1e2
                ),
            ),
            (
                reached < RECEIVED,
                format!(
                    "{:.1} % of it reached the daemon: inconclusive",
                    reached * 1e2
                ),
            ),
            (
                sent < kpps * HELD,
                format!("the generator sent {sent:.1} of {kpps:.1} kpps: inconclusive"),
            ),
            (
                last > first + GROWTH_KIB,
                format!("memory grew from {first} to {last} KiB"),
            ),
            (
                self.log_lines > LOG_LINES,
                format!("{} lines were logged", self.log_lines),
            ),
            (
                self.brings_cookies && self.cookies == 0,
                "no cookie reply was sent".to_owned(),
            ),
        ];
        checks
            .into_iter()
            .filter_map(|(failed, why)| failed.then_some(why))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, counted: u64) -> Row {
        let sample = |value: f64| Sample::of(vec![value]).expect("one value");
        Row {
            kind: "noise".to_owned(),
            brings_cookies: true,
            ratio: sample(ratio),
            closed_gbps: sample(4.0),
            gbps: sample(4.0),
            kpps: sample(100.0),
            cpu: sample(1.0),
            closed_cpu: sample(1.0),
            sent: 1000,
            drops: BTreeMap::new(),
            counted,
            kernel_drops: 0,
            cookies: 1,
            resident_kib: vec![9000, 9500],
            log_lines: 0,
        }
    }

    #[test]
    fn a_row_passes_at_seventy_percent_if_the_flood_has_reached_the_daemon() {
        assert!(row(0.7, 950).failures(100.0).is_empty());
        assert_eq!(row(0.69, 950).failures(100.0).len(), 1);
        assert_eq!(row(0.7, 949).failures(100.0).len(), 1);
        assert_eq!(row(0.7, 950).failures(110.0).len(), 1);
    }

    #[test]
    fn growth_a_log_flood_and_missing_cookies_are_failures() {
        let failing = Row {
            resident_kib: vec![9000, 9000 + GROWTH_KIB + 1],
            log_lines: LOG_LINES + 1,
            cookies: 0,
            ..row(0.9, 1000)
        };
        assert_eq!(failing.failures(100.0).len(), 3);
    }
}
