//! Two daemons on this machine.

use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::measure::{Bed, peak_memory};

use super::args::{SpeedtestArgs, Test};
use super::bed::{self, implementation};
use super::measure::{IDLE_PLANNED, Path, planned};
use super::progress::Progress;
use super::report::{Ceiling, Report, Run};
use super::{memory, table};

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs) -> anyhow::Result<()> {
    memory::check(args.peers)?;
    let tests = args.tests();
    let planned_tests: Duration = tests.iter().map(|&test| planned(test, args.window())).sum();
    let planned_ceiling = planned(Test::TcpUp, args.window());
    let conditions = args.conditions();
    let is_lossy = conditions.loss_percent > 0.0;
    let planned_bare = planned_ceiling * (1 + u32::from(is_lossy));
    let progress = Progress::new(planned_bare + IDLE_PLANNED + planned_tests);

    let daemon = implementation(args, &args.switches())?;
    let mut bed = bed::build(args, &daemon)?;
    let gbps = measure_bare("bare veth", &mut bed, args, &progress)?;
    bed::impose(&bed, conditions)?;
    let gbps_same_loss = match is_lossy {
        true => measure_bare("bare veth, same loss", &mut bed, args, &progress)?,
        false => None,
    };
    let ceiling = Ceiling {
        gbps,
        gbps_same_loss,
    };
    let runs = measure_tunnel(&mut bed, args, &tests, &progress)?;
    let daemons = [&bed.tunnel.left.daemon, &bed.tunnel.right.daemon];
    let [left, right] = daemons.map(peak_memory);
    let report = Report {
        peak_memory_bytes: Some(left?.max(right?)),
        ..Report::new(args.settings(), ceiling, runs)
    };
    drop(bed);
    drop(progress);
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

/// TCP throughput without a tunnel.
fn measure_bare(
    what: &str,
    bed: &mut Bed,
    args: &SpeedtestArgs,
    progress: &Progress,
) -> anyhow::Result<Option<f64>> {
    let mut path = Path {
        via: bed.bare(),
        ends: &mut bed.ends,
        tunnel: None,
        window: args.window(),
        progress,
    };
    progress.step(what, planned(Test::TcpUp, args.window()));
    let run = path.run(Test::TcpUp);
    Ok(run.with_context(|| format!("TCP over the {what}"))?.gbps)
}
