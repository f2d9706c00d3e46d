//! Two configurations of the daemon, interleaved on one bed.

use anyhow::Result;
use convoy_lab::measure::Sample;

use super::args::SpeedtestArgs;
use super::bed::Here;
use super::contrast::Contrast;
use super::report::{Compared, Comparison, Results, Run};
use super::test::{Load, Test};

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

#[cfg(test)]
mod tests {
    use super::*;

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
