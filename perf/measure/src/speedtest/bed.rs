//! Two daemons on this machine: measured, or profiled.

use std::path::Path;

use convoy_lab::{
    Namespace, loss,
    measure::{Bed, process},
    wireguard::{End, Implementation},
};

use super::{
    args::SpeedtestArgs,
    inside, measure,
    progress::Progress,
    report::{Ceiling, Results, Run, Runs},
};
use crate::{
    Error,
    error::Step as _,
    profile::{Daemon, Directory, Profiler, Window},
};

/// The veth's name at both ends.
const VETH: &str = "veth0";

/// Two namespaces with a tunnel, and the tests to run there.
pub(super) struct Here<'a> {
    args: &'a SpeedtestArgs,
    bed: Bed,
    progress: Progress,
}

/// Measures a tunnel between two daemons.
pub(super) fn run(args: &SpeedtestArgs) -> Result<Results, Error> {
    let is_lossy = args.loss > 0.0;
    let steps = 1 + usize::from(is_lossy) + measure::Path::steps(&args.tests);
    let daemon = args.implementation(&args.switches())?;
    let mut here = Here::build(args, &daemon, steps)?;
    let gbps = Some(here.bare("bare veth")?);
    here.impose_conditions()?;
    let gbps_same_loss = match is_lossy {
        true => Some(here.bare("bare veth, same loss")?),
        false => None,
    };
    let results = Runs {
        ceiling: Ceiling {
            gbps,
            gbps_same_loss,
        },
        runs: here.tunnel()?,
        peak_memory_bytes: Some(here.peak_memory()?),
    };
    Ok(Results::Runs(results))
}

/// Profiles, and writes the profile to `out`; with `--compare`, one below it for each side. Returns the figures of the
/// one configuration.
pub(super) fn run_profiled(args: &SpeedtestArgs, out: &Path) -> Result<Option<Results>, Error> {
    let Some(contrast) = args.compare else {
        let results = Runs {
            runs: profile(args, &args.switches(), out, None)?,
            ..Runs::default()
        };
        return Ok(Some(Results::Runs(results)));
    };
    if args.json {
        let refusal = "--json with --profile shows one configuration, not --compare";
        return Err(Error::Refused(refusal.to_owned()));
    }
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
) -> Result<Vec<Run>, Error> {
    let steps = (1 + measure::Path::steps(&args.tests)) * Window::ALL.len();
    let mut here = Here::build(args, &args.implementation(switches)?, steps)?;
    here.impose_conditions()?;
    here.bed.wait_until_up()?;
    let daemon = |end: &End| Daemon::new(end.daemon.pid(), end.daemon.socket());
    let tunnel = &here.bed.tunnel;
    let daemons = vec![daemon(&tunnel.left), daemon(&tunnel.right)];
    let mut profiler = Profiler::new(daemons, out, before, args.call_graph)?;
    let mut counted = Vec::new();
    for window in Window::ALL {
        here.progress.step(window.name());
        let runs = profiler.look(window, |_| here.tunnel())?;
        if window == Window::Counters {
            counted = runs;
        }
    }
    drop(here);
    let names: Vec<_> = args.tests.iter().map(|test| test.name.as_str()).collect();
    let command = ["convoy speedtest", &switches.join(" ")].join(" ");
    profiler.report(format!("`{}`: {}", command.trim_end(), names.join(", ")))?;
    Ok(counted)
}

impl<'a> Here<'a> {
    /// Builds the namespaces and the tunnel for `args`, with `daemon` at each end, for a measurement with
    /// this many steps.
    pub(super) fn build(
        args: &'a SpeedtestArgs,
        daemon: &Implementation,
        steps: usize,
    ) -> Result<Self, Error> {
        let program = inside::program()?;
        let agent = |namespace: &Namespace| inside::traffic(namespace.command(&program));
        Ok(Self {
            args,
            bed: Bed::with(daemon, agent, &args.tunnel())?,
            progress: Progress::new(steps),
        })
    }

    /// From now on the veth cuts and loses packets as `args` say.
    pub(super) fn impose_conditions(&self) -> Result<(), Error> {
        for end in [&self.bed.tunnel.left, &self.bed.tunnel.right] {
            if !self.args.veth_gso() {
                end.namespace.link().cut_batches(VETH)?;
            }
            if self.args.loss > 0.0 {
                loss::lose_arriving(&end.namespace, VETH, self.args.loss).step("--loss")?;
            }
        }
        Ok(())
    }

    /// Replaces both daemons.
    pub(super) fn restart(&mut self, daemon: &Implementation) -> Result<(), Error> {
        Ok(self.bed.restart(daemon)?)
    }

    /// Runs the tests through the tunnel.
    pub(super) fn tunnel(&mut self) -> Result<Vec<Run>, Error> {
        self.bed.wait_until_up()?;
        let mut path = measure::Path {
            via: self.bed.tunnelled(),
            ends: &mut self.bed.ends,
            tunnel: Some(&mut self.bed.tunnel),
            window: self.args.window(),
            progress: &self.progress,
        };
        path.run_all(&self.args.tests)
    }

    /// TCP throughput without a tunnel, in 10⁹ bits per second.
    fn bare(&mut self, name: &str) -> Result<f64, Error> {
        self.progress.step(name);
        let mut path = measure::Path {
            via: self.bed.bare(),
            ends: &mut self.bed.ends,
            tunnel: None,
            window: self.args.window(),
            progress: &self.progress,
        };
        path.throughput().step(format!("TCP over the {name}"))
    }

    /// The higher of the two daemons' peaks, in bytes.
    fn peak_memory(&self) -> Result<u64, Error> {
        let tunnel = &self.bed.tunnel;
        let peak = |end: &End| process::peak_memory(end.daemon.pid());
        Ok(peak(&tunnel.left)?.max(peak(&tunnel.right)?))
    }
}
