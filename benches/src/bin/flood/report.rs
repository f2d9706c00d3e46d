//! What is printed, what is written, and what counts as failed.

use std::{collections::BTreeMap, path::PathBuf};

use convoy_lab::measure::{Host, Sample};
use serde::Serialize;

/// Of the rate beside the same flood at a closed port, what must be left.
const KEPT: f64 = 0.7;
/// Of the flood, what the daemon must have received: otherwise it was spared.
const RECEIVED: f64 = 0.95;
/// Of the rate asked for, what the generator must have sent.
const HELD: f64 = 0.95;
/// By how much memory may have grown between the first pair of runs and the last, in KiB.
const GROWTH_KIB: u64 = 2048;
/// Lines that both daemons may log in a row's time.
const LOG_LINES: usize = 10;

/// Everything that `--json` writes.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) host: Host,
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<Row>,
}

/// What was asked for.
#[derive(Serialize)]
pub(crate) struct Settings {
    pub(crate) program: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) secs: u64,
    /// Datagrams a second.
    pub(crate) rate: u32,
}

/// One kind of flood.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) kind: &'static str,
    #[serde(skip)]
    pub(crate) brings_cookies: bool,
    /// TCP throughput, daemon's port to closed port, within each pair.
    pub(crate) ratio: Sample,
    /// TCP throughput beside a flood at a closed port.
    pub(crate) closed_gbps: Sample,
    /// TCP throughput beside a flood at the daemon's port.
    pub(crate) gbps: Sample,
    /// What the generator sent to the daemon's port.
    pub(crate) kpps: Sample,
    /// CPU seconds of the flooded daemon a second.
    pub(crate) cpu: Sample,
    /// The same beside a flood at a closed port.
    pub(crate) closed_cpu: Sample,
    /// Datagrams sent to the daemon's port.
    pub(crate) sent: u64,
    /// Datagrams that the daemon counted as dropped, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Their sum.
    pub(crate) counted: u64,
    /// Datagrams that the socket had no room for, of the transfer's, too; a train is one.
    pub(crate) kernel_drops: u64,
    /// Cookie replies of the daemon.
    pub(crate) cookies: u64,
    /// Memory of the daemon after each pair of runs.
    pub(crate) resident_kib: Vec<u64>,
    /// Lines that both daemons have logged.
    pub(crate) log_lines: usize,
}

impl Report {
    pub(crate) fn print_head(&self, silent_ports: bool) {
        let Settings {
            rounds, secs, rate, ..
        } = self.settings;
        println!("{rate} datagrams a second from 65,536 addresses · {rounds} pairs of {secs} s");
        println!("{}", self.host);
        if !silent_ports {
            println!("the closed port answers some datagrams by ICMP errors");
        }
        println!(
            "\n  {:<20} {:>6} {:>13} {:>7} {:>7} {:>6} {:>8} {:>9} {:>8} {:>8} {:>15} {:>4}",
            "flood",
            "kept",
            "(spread)",
            "closed",
            "Gbit/s",
            "kpps",
            "reached",
            "no room",
            "cookies",
            "CPU",
            "RSS KiB",
            "log"
        );
    }

    pub(crate) fn print_foot(&self) {
        println!(
            "\nkept     TCP throughput beside the flood, as a share of that beside the same flood at a closed port"
        );
        println!("reached  datagrams of the flood that the daemon has counted, by reason (--json)");
        println!("no room  datagrams that its socket had no room for, of the transfer's, too");
        println!("CPU      seconds a second, closed port → daemon's port");
        println!("RSS      after the first and the last pair of runs");
    }

    /// What did not pass, one line each.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let rate = f64::from(self.settings.rate) / 1e3;
        let rows = self.rows.iter();
        rows.flat_map(move |row| {
            let failures = row.failures(rate).into_iter();
            failures.map(|failure| format!("{}: {failure}", row.kind))
        })
    }
}

impl Row {
    pub(crate) fn print(&self) {
        let spread = format!("{:.2}–{:.2}", self.ratio.min, self.ratio.max);
        let cpu = format!("{:.2}→{:.2}", self.closed_cpu.median, self.cpu.median);
        let (first, last) = self.resident();
        println!(
            "  {:<20} {:>6.2} {:>13} {:>7.2} {:>7.2} {:>6.1} {:>7.1}% {:>9} {:>8} {:>9} {:>15} {:>4}",
            self.kind,
            self.ratio.median,
            format!("({spread})"),
            self.closed_gbps.median,
            self.gbps.median,
            self.kpps.median,
            self.reached() * 100.0,
            self.kernel_drops,
            self.cookies,
            cpu,
            format!("{first}→{last}"),
            self.log_lines
        );
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
        let checks = [
            (self.ratio.median < KEPT).then(|| {
                let kept = self.ratio.median * 100.0;
                format!(
                    "keeps {kept:.0} % of its throughput, not {:.0} %",
                    KEPT * 100.0
                )
            }),
            (self.reached() < RECEIVED).then(|| {
                let reached = self.reached() * 100.0;
                format!("{reached:.1} % of it reached the daemon: says little")
            }),
            (self.kpps.median < kpps * HELD).then(|| {
                let sent = self.kpps.median;
                format!("the generator sent {sent:.1} of {kpps:.1} kpps: says little")
            }),
            (last > first + GROWTH_KIB).then(|| format!("memory grew from {first} to {last} KiB")),
            (self.log_lines > LOG_LINES).then(|| format!("{} lines were logged", self.log_lines)),
            (self.brings_cookies && self.cookies == 0)
                .then(|| "no cookie reply was sent".to_owned()),
        ];
        checks.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, counted: u64) -> Row {
        let sample = |value: f64| Sample::of(vec![value]).expect("one value");
        Row {
            kind: "noise",
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
