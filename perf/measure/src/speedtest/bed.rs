//! Two daemons on this machine: measured, or profiled.

use std::{net::IpAddr, path::Path};

use anyhow::{Context as _, Result, ensure};
use convoy_lab::measure::{Bed, process};
use convoy_lab::wireguard::{End, Implementation};
use convoy_lab::{Namespace, loss};

use super::args::SpeedtestArgs;
use super::inside::{agent, program};
use super::measure;
use super::progress::Progress;
use super::report::{Ceiling, Results, Run, Runs};
use crate::profile::{Daemon, Directory, Profiler, TOOLS};

/// The veth's name at both ends.
const VETH: &str = "veth0";

/// Two namespaces with a tunnel, and the tests to run there.
pub(super) struct Here<'a> {
    args: &'a SpeedtestArgs,
    pub(super) bed: Bed,
    progress: Progress,
}

/// Measures a tunnel between two daemons.
pub(super) fn run(args: &SpeedtestArgs) -> Result<Results> {
    let is_lossy = args.loss > 0.0;
    let steps = 1 + usize::from(is_lossy) + args.steps();
    let daemon = args.implementation(&args.switches())?;
    let mut here = Here::build(args, &daemon, steps)?;
    let gbps = here.bare("bare veth")?;
    here.impose_conditions()?;
    let same_loss = is_lossy.then(|| here.bare("bare veth, same loss"));
    let ceiling = Ceiling {
        gbps,
        gbps_same_loss: same_loss.transpose()?.flatten(),
    };
    let runs = here.tunnel()?;
    let [left, right] = here.ends().map(|it| process::peak_memory(it.daemon.pid()));
    Ok(Results::Runs(Runs {
        ceiling,
        runs,
        peak_memory_bytes: Some(left?.max(right?)),
    }))
}

/// Profiles, and writes the profile to `out`; with `--compare`, one below it for each side. Returns the figures of the
/// one configuration.
pub(super) fn run_profiled(args: &SpeedtestArgs, out: &Path) -> Result<Option<Results>> {
    let Some(contrast) = args.compare else {
        return Ok(Some(Results::Runs(Runs {
            runs: profile(args, &args.switches(), out, None)?,
            ..Runs::default()
        })));
    };
    ensure!(
        !args.json,
        "--json with --profile shows one configuration, not --compare"
    );
    // Fails if the directory is not empty; a new directory is removed again if nothing stays in it.
    let _outer = Directory::open(out)?;
    let [with, without] = contrast.sides(&args.switches())?;
    let below = |side: &str| out.join(side.replace(", ", "-").replace(' ', "-"));
    let (with_out, without_out) = (below(with.name), below(without.name));
    profile(args, &without.daemon, &without_out, None)?;
    // Red is then the feature's cost, blue its saving.
    profile(args, &with.daemon, &with_out, Some(&without_out)).map(|_| None)
}

/// Profiles two daemons with `switches`; returns the figures of the run under `perf stat`.
fn profile(
    args: &SpeedtestArgs,
    switches: &[String],
    out: &Path,
    before: Option<&Path>,
) -> Result<Vec<Run>> {
    let steps = (1 + args.steps()) * TOOLS.len();
    let mut here = Here::build(args, &args.implementation(switches)?, steps)?;
    here.impose_conditions()?;
    here.bed.wait_until_up()?;
    let daemons = here.ends().map(|end| Daemon {
        pid: end.daemon.pid(),
        socket: Some(end.daemon.socket().to_owned()),
    });
    let mut profiler = Profiler::new(daemons.into(), out, before, args.call_graph)?;
    let mut runs = profiler.observe(|step, _| {
        here.progress.step(step);
        here.tunnel()
    })?;
    drop(here);
    let names: Vec<_> = args.tests.iter().map(|test| test.name.as_str()).collect();
    let command = ["convoy speedtest", &switches.join(" ")].join(" ");
    profiler.report(format!("`{}`: {}", command.trim_end(), names.join(", ")))?;
    Ok(runs.swap_remove(0))
}

impl<'a> Here<'a> {
    /// Builds the namespaces and the tunnel for `args`, with `daemon` at each end, for a measurement with
    /// this many steps.
    pub(super) fn build(
        args: &'a SpeedtestArgs,
        daemon: &Implementation,
        steps: usize,
    ) -> Result<Self> {
        let program = program()?;
        let agent = |namespace: &Namespace| agent(namespace.command(&program));
        Ok(Self {
            args,
            bed: Bed::with(daemon, agent, &args.tunnel())?,
            progress: Progress::new(steps),
        })
    }

    /// From now on the veth cuts and loses packets as `args` say.
    pub(super) fn impose_conditions(&self) -> Result<()> {
        for End { namespace, .. } in self.ends() {
            if !self.args.veth_gso() {
                namespace.link().cut_batches(VETH)?;
            }
            if self.args.loss > 0.0 {
                loss::lose_arriving(namespace, VETH, self.args.loss).context("--loss")?;
            }
        }
        Ok(())
    }

    /// Runs the tests through the tunnel.
    pub(super) fn tunnel(&mut self) -> Result<Vec<Run>> {
        self.bed.wait_until_up()?;
        self.path(self.bed.tunnelled()).run_all()
    }

    /// TCP throughput without a tunnel, in 10⁹ bits per second.
    fn bare(&mut self, name: &str) -> Result<Option<f64>> {
        self.progress.step(name);
        let mut path = self.path(self.bed.bare());
        path.tunnel = None;
        let gbps = path.throughput();
        gbps.with_context(|| format!("TCP over the {name}"))
    }

    fn path(&mut self, via: IpAddr) -> measure::Path<'_> {
        measure::Path {
            ends: &mut self.bed.ends,
            via,
            tunnel: Some(&mut self.bed.tunnel),
            args: self.args,
            progress: &self.progress,
        }
    }

    fn ends(&self) -> [&End; 2] {
        [&self.bed.tunnel.left, &self.bed.tunnel.right]
    }
}
