//! Two configurations of the daemon, measured in turns on one bed.

use std::time::Duration;

use anyhow::bail;
use convoy_lab::measure::{Host, Sample};

use super::args::{Contrast, Load, SpeedtestArgs, Test};
use super::bed::{self, implementation};
use super::here::measure_tunnel;
use super::measure::{IDLE_PLANNED, planned};
use super::progress::Progress;
use super::report::{Compared, Comparison, ComparisonReport, Run, Side};
use super::{memory, table};

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs, what: Contrast) -> anyhow::Result<()> {
    memory::check(args.peers)?;
    let sides = sides(what, &args.switches())?;
    let tests = args.tests();
    let one_turn: Duration = tests.iter().map(|&test| planned(test, args.window())).sum();
    let progress = Progress::new((one_turn + IDLE_PLANNED) * 2 * args.rounds);

    let [a, b] = &sides;
    let daemons = [
        implementation(args, &a.daemon)?,
        implementation(args, &b.daemon)?,
    ];
    let mut bed = bed::build(args, &daemons[0])?;
    bed::impose(&bed, args.conditions())?;
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        for side in order(round) {
            bed.restart(&daemons[side])?;
            runs[side].extend(measure_tunnel(&mut bed, args, &tests, &progress)?);
        }
    }
    drop(bed);
    drop(progress);

    let [a, b] = sides;
    let report = ComparisonReport {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::of_this_machine(),
        settings: args.settings(),
        compare: Comparison {
            what: name(what),
            rounds: args.rounds,
            a,
            b,
            tests: tests
                .iter()
                .flat_map(|&test| compared(test, &runs))
                .collect(),
        },
    };
    table::print_comparison(&report, args.json)
}

/// A first in even rounds, B first in odd ones: what drifts with time then favours neither.
fn order(round: u32) -> [usize; 2] {
    if round.is_multiple_of(2) {
        [0, 1]
    } else {
        [1, 0]
    }
}

fn name(what: Contrast) -> &'static str {
    match what {
        Contrast::Gso => "gso",
        Contrast::TunOffload => "tun-offload",
        Contrast::Batch => "batch",
        Contrast::Shape => "shape",
    }
}

/// The two configurations, on top of what is passed through to both.
pub(super) fn sides(what: Contrast, common: &[String]) -> anyhow::Result<[Side; 2]> {
    let (a, b): ((_, &[&str]), (_, &[&str])) = match what {
        Contrast::Gso => (("gso", &["--gso", "on"]), ("no gso", &["--gso", "off"])),
        Contrast::TunOffload => (
            ("tun offload", &["--tun-offload", "on"]),
            ("no tun offload", &["--tun-offload", "off"]),
        ),
        Contrast::Batch => (
            ("batch 50", &["--batch", "50"]),
            ("batch 1", &["--batch", "1"]),
        ),
        Contrast::Shape => (
            ("gso, batch 50", &["--gso", "on", "--batch", "50"]),
            ("no gso, batch 1", &["--gso", "off", "--batch", "1"]),
        ),
    };
    let changed = |given: &&String| given.starts_with("--") && a.1.contains(&given.as_str());
    if let Some(switch) = common.iter().find(changed) {
        bail!("{switch} is what --compare {} changes", name(what));
    }
    let side = |(name, switches): (&'static str, &[&str])| Side {
        name,
        daemon: common
            .iter()
            .cloned()
            .chain(switches.iter().map(|&switch| switch.to_owned()))
            .collect(),
    };
    Ok([side(a), side(b)])
}

/// Throughput and CPU time of one test.
fn compared(test: Test, runs: &[Vec<Run>; 2]) -> [Compared; 2] {
    let rate = match test.load() {
        Load::Tcp { .. } => "gbps",
        Load::Udp { .. } => "kpps",
    };
    [rate, "cpu_s_per_gb"].map(|figure| {
        let [a, b] = runs.each_ref().map(|runs| {
            let runs = runs.iter().filter(|run| run.name == test.to_string());
            // A rate that was not found is none; as zero it keeps its place among the rounds.
            runs.map(|run| value(run, figure).unwrap_or(0.0))
                .collect::<Vec<_>>()
        });
        Compared {
            name: test.to_string(),
            figure,
            ratio: Sample::of_ratios(&a, &b),
            a: Sample::of(a),
            b: Sample::of(b),
        }
    })
}

fn value(run: &Run, figure: &str) -> Option<f64> {
    match figure {
        "gbps" => run.gbps,
        "kpps" => run.kpps,
        _ => run.cpu_s_per_gb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(gbps: &[f64]) -> Vec<Run> {
        let run = |&gbps| Run {
            gbps: Some(gbps),
            cpu_s_per_gb: Some(2.0),
            ..Run::named("tcp-up")
        };
        gbps.iter().map(run).collect()
    }

    #[test]
    fn medians_and_ratios_are_taken_over_the_rounds() {
        let runs = [runs(&[4.0, 5.0, 6.0]), runs(&[2.0, 1.0, 2.0])];
        let compared = compared(Test::TcpUp, &runs);
        assert_eq!(compared[0].figure, "gbps");
        assert_eq!(compared[0].a.as_ref().unwrap().median, 5.0);
        assert_eq!(compared[0].b.as_ref().unwrap().median, 2.0);
        let ratio = compared[0].ratio.as_ref().unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 5.0));
        assert_eq!(compared[1].ratio.as_ref().unwrap().median, 1.0);
    }

    #[test]
    fn each_configuration_goes_first_in_every_other_round() {
        assert_eq!([order(0), order(1), order(2)], [[0, 1], [1, 0], [0, 1]]);
    }

    #[test]
    fn switches_for_both_come_with_the_contrast() {
        let common = ["--batch".to_owned(), "9".to_owned()];
        let [a, b] = sides(Contrast::Gso, &common).unwrap();
        assert_eq!(a.daemon, ["--batch", "9", "--gso", "on"]);
        assert_eq!(b.daemon, ["--batch", "9", "--gso", "off"]);
    }

    #[test]
    fn a_switch_cannot_be_both_fixed_and_compared() {
        let common = ["--gso".to_owned(), "off".to_owned()];
        assert!(sides(Contrast::Shape, &common).is_err());
        assert!(sides(Contrast::Batch, &common).is_ok());
    }
}
