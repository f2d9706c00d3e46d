//! Two daemons on this machine.

use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::measure::{Bed, Host};

use super::args::{SpeedtestArgs, Test};
use super::bed::{self, implementation};
use super::measure::{IDLE_PLANNED, Path, planned};
use super::progress::Progress;
use super::report::{Ceiling, Report, Run};
use super::{memory, table};

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs) -> anyhow::Result<()> {
    memory::check()?;
    let tests = args.tests();
    let planned_tests: Duration = tests.iter().map(|&test| planned(test, args.window())).sum();
    let planned_ceiling = planned(Test::TcpUp, args.window());
    let progress = Progress::new(planned_ceiling + IDLE_PLANNED + planned_tests);

    let daemon = implementation(args, &args.switches())?;
    let mut bed = bed::build(args.conditions(), &daemon)?;
    let ceiling = measure_ceiling(&mut bed, args, &progress)?;
    let runs = measure_tunnel(&mut bed, args, &tests, &progress)?;
    drop(bed);
    drop(progress);

    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::of_this_machine(),
        settings: args.settings(),
        ceiling,
        runs,
    };
    table::print(&report, args.json)
}

/// Runs `tests` through the tunnel.
pub(super) fn measure_tunnel(
    bed: &mut Bed,
    args: &SpeedtestArgs,
    tests: &[Test],
    progress: &Progress,
) -> anyhow::Result<Vec<Run>> {
    bed.wait_until_up()?;
    let mut path = Path {
        via: bed.tunnelled(),
        ends: &mut bed.ends,
        tunnel: Some(&mut bed.tunnel),
        window: args.window(),
        progress,
    };
    path.run_all(tests)
}

fn measure_ceiling(
    bed: &mut Bed,
    args: &SpeedtestArgs,
    progress: &Progress,
) -> anyhow::Result<Ceiling> {
    let mut path = Path {
        via: bed.bare(),
        ends: &mut bed.ends,
        tunnel: None,
        window: args.window(),
        progress,
    };
    progress.step("bare veth", planned(Test::TcpUp, args.window()));
    let run = path.run(Test::TcpUp).context("TCP over the bare veth")?;
    Ok(Ceiling { gbps: run.gbps })
}
