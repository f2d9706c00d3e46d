//! The figures of each kind of flood and its verdict.

use convoy_lab::measure::{Counters, Sample};
use serde::Serialize;

use super::lockout::{self, Lockout};
use crate::origin::Origin;
use crate::results::Report;
use crate::table::{self, cell, spread};

/// The share of throughput that TCP must keep, relative to the same flood at a closed port.
const KEPT: f64 = 0.7;
/// The same for a flood that the daemon answers: 65,536 cookie replies a second keep peers from being locked out,
/// and cost their sends.
const KEPT_ANSWERING: f64 = 0.5;
/// The share of the flood that the daemon must have received; otherwise the run proves nothing.
const RECEIVED: f64 = 0.95;
/// The share of the requested rate that the generator must have sent.
const HELD: f64 = 0.95;
/// The limit for memory growth from the first pair of runs to the last, in KiB.
const GROWTH_KIB: u64 = 2048;
/// The limit for lines that both daemons log during one kind of flood.
const LOG_LINES: usize = 10;

const LEGEND: &str = "
kept: TCP throughput during the flood, relative to the same flood at a closed port; reached: datagrams of the flood
that the daemon counted (--json lists the reasons); no room: datagrams that overflowed its socket, including the
transfer's; CPU: seconds per second, closed port → daemon's port; RSS: after the first and the last pair of runs;
log: lines.
";

/// A whole run.
#[derive(Serialize)]
pub(super) struct Record {
    pub(super) origin: Origin,
    pub(super) rounds: u32,
    pub(super) secs: u64,
    /// Datagrams per second.
    pub(super) rate: u32,
    /// Whether closed ports of the right host send no ICMP errors.
    pub(super) has_silent_ports: bool,
    pub(super) rows: Vec<Row>,
    pub(super) lockouts: Vec<Lockout>,
}

/// One kind of flood.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) kind: String,
    #[serde(skip)]
    pub(super) brings_cookies: bool,
    /// Runs aimed at a closed port and at the daemon's port, in pairs.
    pub(super) closed: Vec<Run>,
    pub(super) open: Vec<Run>,
    /// The daemon's memory after each pair of runs.
    pub(super) resident_kib: Vec<u64>,
    /// Lines logged by both daemons.
    pub(super) log_lines: usize,
}

/// One run.
#[derive(Clone, Default, Serialize)]
pub(super) struct Run {
    /// TCP throughput through the tunnel.
    pub(super) gbps: f64,
    /// Datagrams that the generator sent.
    pub(super) kpps: f64,
    pub(super) sent: u64,
    /// CPU seconds per second of the right daemon.
    pub(super) cpu: f64,
    /// The right daemon's counts, from before the flood until it had processed all of it.
    pub(super) counters: Counters,
}

impl Report for Record {
    fn text(&self) -> String {
        let (rate, rounds, secs) = (self.rate, self.rounds, self.secs);
        let head = "flood | kept | closed | Gbit/s | kpps | reached | no room | cookies | CPU | RSS KiB | log";
        let table = table::markdown(head, self.rows.iter().map(Row::cells));
        let remark = match self.has_silent_ports {
            true => "",
            false => "\nThe closed port answers some datagrams by ICMP errors.\n",
        };
        format!(
            "{rate} datagrams/s from 65,536 addresses, {rounds} pairs of {secs} s\n{}\n\n{table}{LEGEND}{remark}{}",
            self.origin.host,
            lockout::text(&self.lockouts),
        )
    }
}

impl Record {
    /// One line for each failed check.
    pub(super) fn failures(&self) -> Vec<String> {
        let kpps = f64::from(self.rate) / 1e3;
        let rows = self.rows.iter().flat_map(|row| {
            let failures = row.failures(kpps).into_iter();
            failures.map(|failure| format!("{}: {failure}", row.kind))
        });
        rows.chain(self.lockouts.iter().filter_map(Lockout::failure))
            .collect()
    }
}

impl Row {
    pub(super) fn cells(&self) -> Vec<String> {
        let [first, last] = self.resident();
        let of = |runs: &[Run], figure, digits| format!("{:.digits$}", median(runs, figure));
        let [closed_cpu, cpu] = [&self.closed, &self.open].map(|runs| median(runs, |run| run.cpu));
        vec![
            self.kind.clone(),
            cell(self.kept().map(|kept| spread(&kept, 2))),
            of(&self.closed, |run| run.gbps, 2),
            of(&self.open, |run| run.gbps, 2),
            of(&self.open, |run| run.kpps, 1),
            format!("{:.1} %", self.reached() * 100.0),
            self.sum(|run| run.counters.kernel_drops()).to_string(),
            self.sum(|run| run.counters.cookies_sent).to_string(),
            format!("{closed_cpu:.2}→{cpu:.2}"),
            format!("{first}→{last}"),
            self.log_lines.to_string(),
        ]
    }

    /// TCP throughput, ratio of daemon's port to closed port, within each pair.
    fn kept(&self) -> Option<Sample> {
        let gbps = |runs: &[Run]| runs.iter().map(|run| run.gbps).collect::<Vec<_>>();
        Sample::of_ratios(&gbps(&self.open), &gbps(&self.closed))
    }

    /// The share of the flood that the daemon counted as drops.
    fn reached(&self) -> f64 {
        let drops = |run: &Run| run.counters.inbound_drops().map(|(_, count)| count).sum();
        self.sum(drops) as f64 / self.sum(|run| run.sent).max(1) as f64
    }

    fn sum(&self, count: fn(&Run) -> u64) -> u64 {
        self.open.iter().map(count).sum()
    }

    fn resident(&self) -> [u64; 2] {
        let ends = [self.resident_kib.first(), self.resident_kib.last()];
        ends.map(|kib| kib.copied().unwrap_or_default())
    }

    fn failures(&self, kpps: f64) -> Vec<String> {
        let [first, last] = self.resident();
        let (sent, lines) = (median(&self.open, |run| run.kpps), self.log_lines);
        let kept = self.kept().map_or(0.0, |kept| kept.median);
        let must = if self.brings_cookies {
            KEPT_ANSWERING
        } else {
            KEPT
        };
        let reached = self.reached();
        let has_cookies = !self.brings_cookies || self.sum(|run| run.counters.cookies_sent) > 0;
        #[rustfmt::skip]
        let checks = [
            (kept >= must, format!("keeps {kept:.2} of its throughput, not {must}")),
            (reached >= RECEIVED, format!("{reached:.3} of it reached the daemon: inconclusive")),
            (sent >= kpps * HELD, format!("the generator sent {sent:.1} of {kpps:.1} kpps: inconclusive")),
            (last <= first + GROWTH_KIB, format!("memory grew from {first} to {last} KiB")),
            (lines <= LOG_LINES, format!("{lines} lines were logged")),
            (has_cookies, "no cookie reply was sent".to_owned()),
        ];
        let failed = checks.into_iter().filter(|(passed, _)| !passed);
        failed.map(|(_, why)| why).collect()
    }
}

fn median(runs: &[Run], figure: fn(&Run) -> f64) -> f64 {
    Sample::of(runs.iter().map(figure).collect()).map_or(0.0, |sample| sample.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, counted: u64) -> Row {
        let mut run = Run {
            gbps: 4.0,
            kpps: 100.0,
            sent: 1000,
            ..Run::default()
        };
        let closed = vec![run.clone()];
        run.gbps *= ratio;
        run.counters.cookies_sent = 1;
        let drops = &mut run.counters.drops;
        drops.insert("inbound_malformed".to_owned(), counted);
        Row {
            kind: "noise".to_owned(),
            brings_cookies: true,
            closed,
            open: vec![run],
            resident_kib: vec![9000, 9500],
            log_lines: 0,
        }
    }

    #[test]
    fn a_row_passes_at_half_the_rate_if_the_flood_has_reached_the_daemon() {
        let passing = (0.5, 950, 100.0);
        let failing = [(0.49, 950, 100.0), (0.5, 949, 100.0), (0.5, 950, 110.0)];
        for (ratio, counted, kpps) in failing {
            assert_eq!(row(ratio, counted).failures(kpps).len(), 1);
        }
        let (ratio, counted, kpps) = passing;
        let mut row = row(ratio, counted);
        assert!(row.failures(kpps).is_empty());
        row.resident_kib.push(9000 + GROWTH_KIB + 1);
        row.log_lines = LOG_LINES + 1;
        row.open[0].counters.cookies_sent = 0;
        assert_eq!(row.failures(kpps).len(), 3);
    }

    #[test]
    fn a_row_without_cookies_passes_at_seventy_percent() {
        for (ratio, failures) in [(0.69, 1), (0.7, 0)] {
            let mut row = row(ratio, 950);
            row.brings_cookies = false;
            assert_eq!(row.failures(100.0).len(), failures);
        }
    }
}
