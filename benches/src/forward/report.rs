//! The tables of the forwarders.

use convoy_lab::measure::Sample;

use super::contender::{COPY, OTHERS, SPLICE, TOKIO};
use super::{Measured, Record, STREAMS};
use crate::comparison::Ratio;
use crate::results::Report;
use crate::table::{cell, markdown, number, spread};

/// Both are demanded of the whole run; the second one where the processor is the limit.
const SPLICE_AT_LEAST: f64 = 1.0;
const COPY_AT_LEAST: f64 = 1.5;

const LEGEND: &str = "
Medians over interleaved rounds, with the lowest and highest value in brackets. Ratios of the first table divide
medians by that of tokio's own `copy_bidirectional`. CPU time is that of the forwarder and its children; perf counts all
their system calls. iperf3 runs on the same processors. The published figures are those of another program on another
machine, with 8, 16 and 64 KiB: compare their ratios. socat starts a process for each connection; haproxy splices, too.
";
const MUSTS: &str = "
Ratios within each round, with their 95 % interval (for fewer than six rounds the lowest and highest value). Splicing
must be at least as fast as the best of the other forwarders. Copying by 64 KiB must reach 1.5 times tokio's own copy
where the processor, not the veth or iperf3, is the limit. A forwarder that has less than a CPU to itself (column
`CPUs`) is not the limit; its bytes per CPU second say what it would carry if it were.
";

impl Report for Record {
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.origin.paragraph());
        for one in &self.contenders {
            text += &format!("- {}: {}\n", one.name, cell(one.version.as_ref()));
        }
        text += &format!("\n{}{LEGEND}\n{}{MUSTS}", self.table(), self.musts());
        for (name, why) in &self.absent {
            text += &format!("\n**Not measured: {name}**: {why}\n");
        }
        text
    }
}

impl Record {
    fn table(&self) -> String {
        let first = self.named(TOKIO);
        let base = |of: fn(&Measured) -> Option<f64>| first.and_then(of);
        let rows = self.contenders.iter().map(|it| {
            let ratio = |of: fn(&Measured) -> Option<f64>| Some(of(it)? / base(of)?);
            let calls = it.calls_per_gb.iter().flatten().copied().collect();
            let calls = Sample::of(calls).map(|calls| calls.median);
            let cpu = median(&it.cpu_s_per_gb);
            vec![
                it.name.clone(),
                cell(Sample::of(it.gbps.clone()).map(|rate| spread(&rate, 2))),
                number(ratio(Measured::rate), 2),
                number(it.published_gbps, 1),
                number(ratio(|it| it.published_gbps), 1),
                number(cpu, 3),
                number(cpu.zip(it.rate()).map(|(cpu, rate)| cpu * rate / 8.0), 2),
                number(calls, 0),
            ]
        });
        let head = format!(
            "{STREAMS} streams | Gbit/s | ratio | published | ratio | CPU s/GB | CPUs | calls per GB"
        );
        markdown(&head, rows)
    }

    fn musts(&self) -> String {
        let present = OTHERS.iter().filter_map(|name| self.named(name));
        let best =
            present.max_by(|a, b| a.rate().unwrap_or(0.0).total_cmp(&b.rate().unwrap_or(0.0)));
        let pairs = [
            (SPLICE, best, SPLICE_AT_LEAST),
            (COPY, self.named(TOKIO), COPY_AT_LEAST),
        ];
        let row =
            |one: &str, other: Option<&Measured>, at_least, what, of: fn(&Measured) -> Vec<f64>| {
                let (one, other) = (self.named(one)?, other?);
                let ratios = of(one).into_iter().zip(of(other));
                let ratio = Ratio::of(ratios.map(|(one, other)| one / other).collect())?;
                Some(vec![
                    format!("{what}: {} : {}", one.name, other.name),
                    ratio.text(),
                    format!("≥ {at_least} ×"),
                    ratio.judge(|ratio| ratio >= at_least).text().to_owned(),
                ])
            };
        let rows = pairs.into_iter().flat_map(|(one, other, at_least)| {
            [
                row(one, other, at_least, "Gbit/s", |it| it.gbps.clone()),
                row(one, other, at_least, "GB per CPU s", Measured::gb_per_cpu_s),
            ]
        });
        let rows = rows.flatten();
        markdown("must | ratio (95 %) | target | met", rows)
    }

    fn named(&self, name: &str) -> Option<&Measured> {
        self.contenders.iter().find(|it| it.name == name)
    }
}

impl Measured {
    fn rate(&self) -> Option<f64> {
        median(&self.gbps)
    }

    fn gb_per_cpu_s(&self) -> Vec<f64> {
        self.cpu_s_per_gb.iter().map(|cpu| 1.0 / cpu).collect()
    }
}

fn median(values: &[f64]) -> Option<f64> {
    Some(Sample::of(values.to_vec())?.median)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::origin::Origin;

    #[test]
    fn splicing_is_compared_with_the_fastest_other_forwarder() {
        let measured = |name: &str, rate: f64| Measured {
            name: name.to_owned(),
            version: None,
            published_gbps: (name == TOKIO).then_some(17.8),
            gbps: vec![rate; 6],
            cpu_s_per_gb: vec![0.8; 6],
            calls_per_gb: vec![None; 6],
        };
        let contenders = [
            (TOKIO, 10.0),
            (COPY, 14.0),
            (SPLICE, 30.0),
            ("socat", 9.0),
            ("haproxy", 20.0),
        ];
        let record = Record {
            origin: Origin::of_command(Vec::new(), Vec::new()),
            secs: 1,
            absent: BTreeMap::new(),
            contenders: contenders.map(|(name, rate)| measured(name, rate)).into(),
        };
        let text = record.text();
        let line = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split('|').map(str::trim).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            line("| Gbit/s: splice"),
            "|Gbit/s: splice, 64 KiB : haproxy|1.50 (1.50–1.50)|≥ 1 ×|yes|"
        );
        assert_eq!(
            line("| Gbit/s: copy"),
            "|Gbit/s: copy, 64 KiB : tokio's copy, 8 KiB|1.40 (1.40–1.40)|≥ 1.5 ×|**no**|"
        );
        assert_eq!(
            line("| tokio's copy"),
            "|tokio's copy, 8 KiB|10.00 (10.00–10.00)|1.00|17.8|1.0|0.800|1.00|–|"
        );
    }
}
