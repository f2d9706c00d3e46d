//! The figures of each kind of flood, and whether it passes.

use std::collections::BTreeMap;

use convoy_lab::measure::Sample;
use serde::Serialize;

use super::{Kind, Run};
use crate::origin::Origin;
use crate::results::Report;
use crate::table::{self, spread};

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
pub(super) struct Record {
    pub(super) origin: Origin,
    pub(super) rounds: u32,
    pub(super) secs: u64,
    /// Datagrams a second.
    pub(super) rate: u32,
    /// Whether closed ports of the right host send no ICMP errors.
    pub(super) has_silent_ports: bool,
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
    /// Memory of the daemon after the first and after the last pair of runs.
    resident_kib: [u64; 2],
    /// Lines that both daemons have logged.
    log_lines: usize,
}

impl Report for Record {
    fn text(&self) -> String {
        let Self {
            origin,
            rounds,
            secs,
            rate,
            ..
        } = self;
        let head = [
            "flood", "kept", "closed", "Gbit/s", "kpps", "reached", "no room", "cookies", "CPU",
            "RSS KiB", "log",
        ];
        let table = table::markdown(&head, self.rows.iter().map(Row::cells));
        let remark = match self.has_silent_ports {
            true => "",
            false => "\nThe closed port answers some datagrams by ICMP errors.\n",
        };
        format!(
            "{rate} datagrams a second from 65,536 addresses, {rounds} pairs of {secs} s\n{}\n\n{table}{LEGEND}{remark}",
            origin.host
        )
    }
}

impl Record {
    /// One line for each check that failed.
    pub(super) fn failures(&self) -> Vec<String> {
        let kpps = f64::from(self.rate) / 1e3;
        let of_row = |row: &Row| {
            let failures = row.failures(kpps).into_iter();
            let named = failures.map(|failure| format!("{}: {failure}", row.kind));
            named.collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

impl Row {
    /// Of pairs of runs, at a closed port and at the daemon's, with the daemon's memory after each pair.
    pub(super) fn of(
        kind: Kind,
        [closed, open]: &[Vec<Run>; 2],
        resident_kib: &[u64],
        log_lines: usize,
    ) -> Option<Self> {
        let of =
            |runs: &[Run], figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
        let [gbps, closed_gbps] = [open, closed].map(|runs| of(runs, |run| run.gbps));
        let [cpu, closed_cpu] = [open, closed].map(|runs| of(runs, |run| run.cpu));
        let kpps = |run: &Run| run.flooded.datagrams as f64 / run.flooded.seconds / 1e3;
        let sum = |count: fn(&Run) -> u64| open.iter().map(count).sum::<u64>();
        let mut drops = BTreeMap::new();
        for (reason, count) in open.iter().flat_map(|run| run.counters.inbound_drops()) {
            *drops.entry(reason.to_owned()).or_default() += count;
        }
        Some(Self {
            kind: kind.name(),
            brings_cookies: kind.brings_cookies(),
            ratio: Sample::of_ratios(&gbps, &closed_gbps)?,
            closed_gbps: Sample::of(closed_gbps)?,
            gbps: Sample::of(gbps)?,
            kpps: Sample::of(of(open, kpps))?,
            cpu: Sample::of(cpu)?,
            closed_cpu: Sample::of(closed_cpu)?,
            sent: sum(|run| run.flooded.datagrams),
            counted: drops.values().sum(),
            drops,
            kernel_drops: sum(|run| run.counters.kernel_drops()),
            cookies: sum(|run| run.counters.cookies_sent),
            resident_kib: [*resident_kib.first()?, *resident_kib.last()?],
            log_lines,
        })
    }

    /// In a line of progress.
    pub(super) fn line(&self) -> String {
        format!("{}: keeps {}", self.kind, spread(&self.ratio, 2))
    }

    fn cells(&self) -> Vec<String> {
        let [first, last] = self.resident_kib;
        vec![
            self.kind.clone(),
            spread(&self.ratio, 2),
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

    fn failures(&self, kpps: f64) -> Vec<String> {
        let [first, last] = self.resident_kib;
        let (sent, log_lines) = (self.kpps.median, self.log_lines);
        let (kept, reached) = (self.ratio.median * 1e2, self.reached() * 1e2);
        let mut failures = Vec::new();
        let mut check = |passed: bool, why: String| {
            if !passed {
                failures.push(why);
            }
        };
        let least = KEPT * 1e2;
        check(
            kept >= least,
            format!("keeps {kept:.0} % of its throughput, not {least:.0} %"),
        );
        let why = format!("{reached:.1} % of it reached the daemon: inconclusive");
        check(reached >= RECEIVED * 1e2, why);
        let why = format!("the generator sent {sent:.1} of {kpps:.1} kpps: inconclusive");
        check(sent >= kpps * HELD, why);
        let why = format!("memory grew from {first} to {last} KiB");
        check(last <= first + GROWTH_KIB, why);
        check(
            log_lines <= LOG_LINES,
            format!("{log_lines} lines were logged"),
        );
        let has_cookies = !self.brings_cookies || self.cookies > 0;
        check(has_cookies, "no cookie reply was sent".to_owned());
        failures
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
            resident_kib: [9000, 9500],
            log_lines: 0,
        }
    }

    #[test]
    fn a_row_passes_at_seventy_percent_if_the_flood_has_reached_the_daemon() {
        let cases = [
            (0.7, 950, 100.0, 0),
            (0.69, 950, 100.0, 1),
            (0.7, 949, 100.0, 1),
        ];
        for (ratio, counted, kpps, failures) in cases.into_iter().chain([(0.7, 950, 110.0, 1)]) {
            let found = row(ratio, counted).failures(kpps);
            assert_eq!(found.len(), failures, "{found:?}");
        }
        let failing = Row {
            resident_kib: [9000, 9000 + GROWTH_KIB + 1],
            log_lines: LOG_LINES + 1,
            cookies: 0,
            ..row(0.9, 1000)
        };
        assert_eq!(failing.failures(100.0).len(), 3);
    }
}
