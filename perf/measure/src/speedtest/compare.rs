//! Two configurations of the daemon, interleaved on one bed.

use anyhow::{Result, bail};
use clap::ValueEnum;
use convoy_lab::measure::Sample;
use serde::Serialize;

use super::{
    args::SpeedtestArgs,
    bed::Here,
    report::{Compared, Comparison, Results, Run},
    test::{Load, Test},
};

/// Measures both sides of `contrast`.
pub(super) fn run(args: &SpeedtestArgs, contrast: Contrast) -> Result<Results> {
    let [a, b] = contrast.sides(&args.switches())?;
    let daemons = [
        args.implementation(&a.daemon)?,
        args.implementation(&b.daemon)?,
    ];
    let steps = args.steps() * 2 * args.rounds as usize;
    let mut here = Here::build(args, &daemons[0], steps)?;
    here.impose_conditions()?;
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        // Interleaved, so that drift favours neither.
        let first = round as usize % 2;
        for side in [first, 1 - first] {
            here.bed.restart(&daemons[side])?;
            runs[side].extend(here.tunnel()?);
        }
    }
    drop(here);
    let tests = args.tests.iter().flat_map(|test| compared(test, &runs));
    let compare = Comparison {
        what: contrast,
        rounds: args.rounds,
        a,
        b,
        tests: tests.collect(),
    };
    Ok(Results::Comparison { compare })
}

/// Throughput and CPU time of one test.
fn compared(test: &Test, runs: &[Vec<Run>; 2]) -> [Compared; 2] {
    let rate: (&'static str, fn(&Run) -> Option<f64>) = match test.load {
        Load::Tcp(_) => ("gbps", |run| run.gbps),
        Load::Udp(_) => ("kpps", |run| run.kpps),
    };
    [rate, ("cpu_s_per_gb", |run| run.cpu_s_per_gb)].map(|(figure, value)| {
        // Counts a rate that was not found as zero, so that it keeps its place among the rounds.
        let value = |run: &Run| value(run).unwrap_or(0.0);
        let [a, b] = runs.each_ref().map(|runs| {
            let runs = runs.iter().filter(|run| run.name == test.name);
            runs.map(value).collect::<Vec<_>>()
        });
        Compared {
            name: test.name.clone(),
            figure,
            ratio: Sample::of_ratios(&a, &b),
            a: Sample::of(a),
            b: Sample::of(b),
        }
    })
}

/// Two configurations of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contrast {
    Gso,
    TunOffload,
    Batch,
    Shape,
}

/// One of the two configurations.
#[derive(Serialize)]
pub(super) struct Side {
    pub(super) name: &'static str,
    /// The daemons' switches, as on their command line.
    pub(super) daemon: Vec<String>,
}

impl Contrast {
    /// The two configurations, each with the switches in `common`.
    pub(super) fn sides(self, common: &[String]) -> Result<[Side; 2]> {
        let [a, b] = match self {
            Self::Gso => [("gso", "--gso on"), ("no gso", "--gso off")],
            Self::TunOffload => [
                ("tun offload", "--tun-offload on"),
                ("no tun offload", "--tun-offload off"),
            ],
            Self::Batch => [("batch 50", "--batch 50"), ("batch 1", "--batch 1")],
            Self::Shape => [
                ("gso, batch 50", "--gso on --batch 50"),
                ("no gso, batch 1", "--gso off --batch 1"),
            ],
        };
        let mut set = a.1.split(' ').filter(|word| word.starts_with("--"));
        if let Some(switch) = set.find(|&set| common.iter().any(|given| given == set)) {
            bail!("the comparison sets {switch} itself");
        }
        Ok([a, b].map(|(name, switches)| {
            let switches = switches.split(' ').map(str::to_owned);
            let daemon = common.iter().cloned().chain(switches).collect();
            Side { name, daemon }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_for_both_come_with_the_contrast_unless_it_sets_them() {
        let common = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let [a, b] = Contrast::Gso.sides(&common("--batch 9")).unwrap();
        assert_eq!(a.daemon, ["--batch", "9", "--gso", "on"]);
        assert_eq!(b.daemon, ["--batch", "9", "--gso", "off"]);
        assert!(Contrast::Shape.sides(&common("--gso off")).is_err());
        assert!(Contrast::Batch.sides(&common("--gso off")).is_ok());
    }

    #[test]
    fn medians_and_ratios_are_taken_over_the_rounds() {
        let run = |gbps| Run {
            name: "tcp-up".to_owned(),
            gbps: Some(gbps),
            cpu_s_per_gb: Some(2.0),
            ..Run::default()
        };
        let runs = [[4.0, 5.0, 6.0], [2.0, 1.0, 2.0]].map(|side| side.map(run).to_vec());
        let [rate, cpu] = compared(&"tcp-up".parse().unwrap(), &runs);
        assert_eq!(rate.figure, "gbps");
        let medians = [rate.a, rate.b, cpu.ratio].map(|sample| sample.unwrap().median);
        assert_eq!(medians, [5.0, 2.0, 1.0]);
        let ratio = rate.ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 5.0));
    }
}
