//! Two daemons on this machine, looked into while the tests run.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::End;
use convoy_perf::{Directory, Window};

use crate::profile::{Daemon, Profile, Request};

use super::args::SpeedtestArgs;
use super::bed::{self, implementation};
use super::compare::sides;
use super::here::measure_tunnel;
use super::measure::{IDLE_PLANNED, planned};
use super::progress::Progress;
use super::report::{Ceiling, Report, Run};
use super::{memory, table};

/// Measures, prints, and writes the profile into `out`; with `--compare`, one for each side below it.
pub(super) fn run(args: &SpeedtestArgs, out: &Path) -> anyhow::Result<()> {
    memory::check(args.peers)?;
    let Some(contrast) = args.compare else {
        let runs = profile(args, &args.switches(), out, None)?;
        return print(args, runs);
    };
    ensure!(
        !args.json,
        "--json with --profile shows one configuration, not --compare"
    );
    // Refuses one that is not empty; it goes again if nothing stays in it.
    let _outer = Directory::open(out)?;
    let [with, without] = sides(contrast, &args.switches())?;
    let [with_out, without_out] = [&with, &without].map(|side| out.join(directory_name(side.name)));
    profile(args, &without.daemon, &without_out, None)?;
    // Red is then what the feature costs, blue what it saves.
    profile(args, &with.daemon, &with_out, Some(&without_out)).map(drop)
}

/// Profiles two daemons with `switches`; the figures are those of the tests that were only counted.
fn profile(
    args: &SpeedtestArgs,
    switches: &[String],
    out: &Path,
    before: Option<&Path>,
) -> anyhow::Result<Vec<Run>> {
    let mut bed = bed::build(args, &implementation(args, switches)?)?;
    bed::impose(&bed, args.conditions())?;
    bed.wait_until_up()?;
    let request = Request {
        out,
        before,
        call_graph: args.call_graph.into(),
    };
    let mut profile = Profile::new(daemons(&bed), &request)?;

    let tests = args.tests();
    let one_turn: Duration = tests.iter().map(|&test| planned(test, args.window())).sum();
    let progress = Progress::new((one_turn + IDLE_PLANNED) * Window::ALL.len() as u32);
    let mut counted = Vec::new();
    for window in Window::ALL {
        progress.step(window.name(), Duration::ZERO);
        let load = |_: &mut _| measure_tunnel(&mut bed, args, &tests, &progress);
        let runs = profile.look(window, load)?;
        if window == Window::Counters {
            counted = runs;
        }
    }
    drop(progress);
    let names: Vec<_> = tests.iter().map(ToString::to_string).collect();
    let command = ["convoy speedtest", &switches.join(" ")].join(" ");
    profile.report(&format!("`{}`: {}", command.trim_end(), names.join(", ")))?;
    Ok(counted)
}

fn daemons(bed: &Bed) -> Vec<Daemon> {
    let daemon = |end: &End| Daemon::new(end.daemon.pid(), end.daemon.socket());
    vec![daemon(&bed.tunnel.left), daemon(&bed.tunnel.right)]
}

fn directory_name(side: &str) -> String {
    side.replace(", ", "-").replace(' ', "-")
}

fn print(args: &SpeedtestArgs, runs: Vec<Run>) -> anyhow::Result<()> {
    let report = Report::new(args.settings(), Ceiling::default(), runs);
    table::print(&report, args.json)
}
