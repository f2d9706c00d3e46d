//! Two daemons on this machine.

use anyhow::Context as _;

use super::args::{SpeedtestArgs, Test};
use super::bed::{BARE, Bed, TUNNELLED};
use super::host::Host;
use super::measure::{IDLE_PLANNED, Path, planned};
use super::progress::Progress;
use super::report::{Ceiling, Report, Run};
use super::{memory, table};

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs) -> anyhow::Result<()> {
    memory::check()?;
    let tests = args.tests();
    let planned_tests = tests.iter().map(|&test| planned(test, args.window()));
    let ceiling = planned(Test::TcpUp, args.window());
    let progress =
        Progress::new(planned_tests.sum::<std::time::Duration>() + ceiling + IDLE_PLANNED);

    let mut bed = Bed::new(args.conditions(), args.program()?)?;
    let ceiling = measure_ceiling(&mut bed, args, &progress)?;
    let runs = measure_tunnel(&mut bed, args, &args.switches(), &tests, &progress)?;
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

/// Starts both daemons with `switches` and runs `tests` through them.
pub(super) fn measure_tunnel(
    bed: &mut Bed,
    args: &SpeedtestArgs,
    switches: &[String],
    tests: &[Test],
    progress: &Progress,
) -> anyhow::Result<Vec<Run>> {
    let mut tunnel = bed.tunnel(switches)?;
    let mut path = Path {
        ends: &mut bed.ends,
        via: TUNNELLED,
        tunnel: Some(&mut tunnel),
        window: args.window(),
        progress,
    };
    let ping_idle_ms = path.idle_latency()?;
    let mut runs = Vec::new();
    for &test in tests {
        let run = path.run(test).context(test.name())?;
        runs.push(Run {
            ping_idle_ms,
            ..run
        });
    }
    Ok(runs)
}

fn measure_ceiling(
    bed: &mut Bed,
    args: &SpeedtestArgs,
    progress: &Progress,
) -> anyhow::Result<Ceiling> {
    let mut path = Path {
        ends: &mut bed.ends,
        via: BARE,
        tunnel: None,
        window: args.window(),
        progress,
    };
    let run = path.run(Test::TcpUp).context("TCP over the bare veth")?;
    Ok(Ceiling { gbps: run.gbps })
}
