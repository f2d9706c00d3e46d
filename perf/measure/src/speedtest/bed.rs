//! Two daemons on this machine: measured once, and profiled.

use std::{path::Path, time::Duration};

use convoy_lab::{
    loss,
    measure::{Bed, process},
    wireguard::{End, Implementation},
};

use super::{
    args::SpeedtestArgs,
    compare::sides,
    inside, measure,
    measure::planned,
    memory,
    progress::Progress,
    report::{Ceiling, Report, Run},
    table,
    test::Test,
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
    tests: Vec<Test>,
    bed: Bed,
    progress: Progress,
}

/// Measures and prints.
pub(super) fn run(args: &SpeedtestArgs) -> Result<(), Error> {
    let is_lossy = args.loss > 0.0;
    let bare = measure::planned_throughput(args.window()) * (1 + u32::from(is_lossy));
    let daemon = args.implementation(&args.switches())?;
    let mut here = Here::build(args, &daemon, bare + planned(&args.tests(), args.window()))?;
    let gbps = Some(here.bare("bare veth")?);
    here.impose_conditions()?;
    let gbps_same_loss = match is_lossy {
        true => Some(here.bare("bare veth, same loss")?),
        false => None,
    };
    let runs = here.tunnel()?;
    let peak = here.peak_memory()?;
    // The bar goes before the table comes.
    drop(here);
    let ceiling = Ceiling {
        gbps,
        gbps_same_loss,
    };
    let report = Report {
        peak_memory_bytes: Some(peak),
        ..Report::new(args.settings(), ceiling, runs)
    };
    table::print(&report, args.json)
}

/// Measures, prints, and writes the profile into `out`; with `--compare`, one for each side below it.
pub(super) fn run_profiled(args: &SpeedtestArgs, out: &Path) -> Result<(), Error> {
    let Some(contrast) = args.compare else {
        let runs = profile(args, &args.switches(), out, None)?;
        let report = Report::new(args.settings(), Ceiling::default(), runs);
        return table::print(&report, args.json);
    };
    if args.json {
        let refusal = "--json with --profile shows one configuration, not --compare";
        return Err(Error::Refused(refusal.to_owned()));
    }
    // Refuses a directory that is not empty; a new one goes again if nothing stays in it.
    let _outer = Directory::open(out)?;
    let [with, without] = sides(contrast, &args.switches())?;
    let below = |side: &str| out.join(side.replace(", ", "-").replace(' ', "-"));
    let (with_out, without_out) = (below(with.name), below(without.name));
    profile(args, &without.daemon, &without_out, None)?;
    // Red is then the cost of the feature, blue its saving.
    profile(args, &with.daemon, &with_out, Some(&without_out)).map(drop)
}

/// Profiles two daemons with `switches`; returns the figures of the run that was only counted.
fn profile(
    args: &SpeedtestArgs,
    switches: &[String],
    out: &Path,
    before: Option<&Path>,
) -> Result<Vec<Run>, Error> {
    let total = planned(&args.tests(), args.window()) * Window::ALL.len() as u32;
    let mut here = Here::build(args, &args.implementation(switches)?, total)?;
    here.impose_conditions()?;
    here.bed.wait_until_up()?;
    let daemon = |end: &End| Daemon::new(end.daemon.pid(), end.daemon.socket());
    let daemons = vec![
        daemon(&here.bed.tunnel.left),
        daemon(&here.bed.tunnel.right),
    ];
    let mut profiler = Profiler::new(daemons, out, before, args.call_graph)?;
    let mut counted = Vec::new();
    for window in Window::ALL {
        here.progress.step(window.name(), Duration::ZERO);
        let runs = profiler.look(window, |_| here.tunnel())?;
        if window == Window::Counters {
            counted = runs;
        }
    }
    let names: Vec<_> = here.tests.iter().map(ToString::to_string).collect();
    drop(here);
    let command = ["convoy speedtest", &switches.join(" ")].join(" ");
    profiler.report(&format!("`{}`: {}", command.trim_end(), names.join(", ")))?;
    Ok(counted)
}

impl<'a> Here<'a> {
    /// Builds the namespaces and the tunnel that `args` ask for, with `daemon` at each end; the measurement is
    /// planned to take `total`.
    pub(super) fn build(
        args: &'a SpeedtestArgs,
        daemon: &Implementation,
        total: Duration,
    ) -> Result<Self, Error> {
        memory::check(args.peers)?;
        let program = inside::program()?;
        let agent =
            |namespace: &convoy_lab::Namespace| inside::traffic(namespace.command(&program));
        Ok(Self {
            args,
            tests: args.tests(),
            bed: Bed::with(daemon, agent, &args.tunnel())?,
            progress: Progress::new(total),
        })
    }

    /// From now on the veth cuts and loses packets as `args` ask for.
    pub(super) fn impose_conditions(&self) -> Result<(), Error> {
        for end in [&self.bed.tunnel.left, &self.bed.tunnel.right] {
            if !self.args.veth_gso() {
                inside::cut_veth_batches(&end.namespace, VETH)?;
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
        path.run_all(&self.tests)
    }

    /// TCP throughput without a tunnel, in 10⁹ bits a second.
    fn bare(&mut self, name: &str) -> Result<f64, Error> {
        let window = self.args.window();
        self.progress
            .step(name, measure::planned_throughput(window));
        let mut path = measure::Path {
            via: self.bed.bare(),
            ends: &mut self.bed.ends,
            tunnel: None,
            window,
            progress: &self.progress,
        };
        path.throughput().step(format!("TCP over the {name}"))
    }

    /// The greater peak of the two daemons, in bytes.
    fn peak_memory(&self) -> Result<u64, Error> {
        let tunnel = &self.bed.tunnel;
        let peak = |end: &End| process::peak_memory(end.daemon.pid());
        Ok(peak(&tunnel.left)?.max(peak(&tunnel.right)?))
    }
}
