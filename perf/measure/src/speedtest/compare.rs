//! Two configurations of the daemon, interleaved on one bed.

use convoy_lab::measure::{Host, Sample};

use super::{
    args::{Contrast, SpeedtestArgs, name},
    bed::Here,
    measure::planned,
    report::{Compared, Comparison, ComparisonReport, Run, Side},
    table,
    test::Test,
};
use crate::Error;

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs, what: Contrast) -> Result<(), Error> {
    let [a, b] = sides(what, &args.switches())?;
    let daemons = [
        args.implementation(&a.daemon)?,
        args.implementation(&b.daemon)?,
    ];
    let total = planned(&args.tests(), args.window()) * 2 * args.rounds;
    let mut here = Here::build(args, &daemons[0], total)?;
    here.impose_conditions()?;
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        for side in order(round) {
            here.restart(&daemons[side])?;
            runs[side].extend(here.tunnel()?);
        }
    }
    drop(here);
    let report = ComparisonReport {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::of_this_machine(),
        settings: args.settings(),
        compare: Comparison {
            what: name(what),
            rounds: args.rounds,
            a,
            b,
            tests: args
                .tests()
                .iter()
                .flat_map(|&test| compared(test, &runs))
                .collect(),
        },
    };
    table::print_comparison(&report, args.json)
}

/// A first in even rounds, B first in odd ones: a drift over time then favours neither.
fn order(round: u32) -> [usize; 2] {
    match round.is_multiple_of(2) {
        true => [0, 1],
        false => [1, 0],
    }
}

/// The two configurations, on top of the switches that both have in `common`.
pub(super) fn sides(what: Contrast, common: &[String]) -> Result<[Side; 2], Error> {
    let [a, b]: [(_, &[&str]); 2] = match what {
        Contrast::Gso => [("gso", &["--gso", "on"]), ("no gso", &["--gso", "off"])],
        Contrast::TunOffload => [
            ("tun offload", &["--tun-offload", "on"]),
            ("no tun offload", &["--tun-offload", "off"]),
        ],
        Contrast::Batch => [
            ("batch 50", &["--batch", "50"]),
            ("batch 1", &["--batch", "1"]),
        ],
        Contrast::Shape => [
            ("gso, batch 50", &["--gso", "on", "--batch", "50"]),
            ("no gso, batch 1", &["--gso", "off", "--batch", "1"]),
        ],
    };
    let changes = |given: &&String| given.starts_with("--") && a.1.contains(&given.as_str());
    if let Some(switch) = common.iter().find(changes) {
        let refusal = format!("--compare {} sets {switch} itself", name(what));
        return Err(Error::Refused(refusal));
    }
    let side = |(name, switches): (&'static str, &[&str])| {
        let switches = switches.iter().map(|&switch| switch.to_owned());
        let daemon = common.iter().cloned().chain(switches).collect();
        Side { name, daemon }
    };
    Ok([side(a), side(b)])
}

/// Throughput and CPU time of one test.
fn compared(test: Test, runs: &[Vec<Run>; 2]) -> [Compared; 2] {
    let rate: (&'static str, fn(&Run) -> Option<f64>) = match test {
        Test::Tcp(_) => ("gbps", |run| run.gbps),
        Test::Udp(_) => ("kpps", |run| run.kpps),
    };
    let name = test.to_string();
    [rate, ("cpu_s_per_gb", |run| run.cpu_s_per_gb)].map(|(figure, value)| {
        // A rate that was not found is none; as zero it keeps its place among the rounds.
        let value = |run: &Run| value(run).unwrap_or(0.0);
        let [a, b] = runs.each_ref().map(|runs| {
            let runs = runs.iter().filter(|run| run.name == name);
            runs.map(value).collect::<Vec<_>>()
        });
        Compared {
            name: name.clone(),
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
            gbps: Some(gbps),
            cpu_s_per_gb: Some(2.0),
            ..Run::named("tcp-up")
        };
        let runs = [[4.0, 5.0, 6.0], [2.0, 1.0, 2.0]].map(|side| side.map(run).to_vec());
        let [rate, cpu] = compared(Test::TCP_UP, &runs);
        assert_eq!(rate.figure, "gbps");
        let medians = [&rate.a, &rate.b].map(|sample| sample.as_ref().unwrap().median);
        assert_eq!(medians, [5.0, 2.0]);
        let ratio = rate.ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 5.0));
        assert_eq!(cpu.ratio.unwrap().median, 1.0);
        assert_eq!([order(0), order(1), order(2)], [[0, 1], [1, 0], [0, 1]]);
    }

    #[test]
    fn switches_for_both_come_with_the_contrast_unless_it_sets_them() {
        let common = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let [a, b] = sides(Contrast::Gso, &common("--batch 9")).unwrap();
        assert_eq!(a.daemon, ["--batch", "9", "--gso", "on"]);
        assert_eq!(b.daemon, ["--batch", "9", "--gso", "off"]);
        assert!(sides(Contrast::Shape, &common("--gso off")).is_err());
        assert!(sides(Contrast::Batch, &common("--gso off")).is_ok());
    }
}
