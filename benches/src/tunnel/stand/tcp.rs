//! Bulk TCP on a stand, with its costs.

use std::io;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use convoy_lab::measure::process::{cpu_time, group_cpu_time};
use convoy_lab::measure::{Direction, TcpLoad};
use convoy_lab::traffic::{LatencyReport, TcpReport};
use convoy_lab::wireguard::Underlay;
use convoy_lab::{Detour, Pid, UDP_SEGMENTATION, loss};

use super::{Found, MARGIN, Stand, round_trips};
use crate::agent::ends;
use crate::programs::{count_syscalls, counted_syscalls};
use crate::tunnel::contender::Kind;
use crate::tunnel::scenes::{Load, Scene, Veth};

const VETH: &str = "veth0";
/// System calls are counted in a separate run, since counting costs time; those of forwarders in the same one.
const COUNTED: Duration = Duration::from_secs(1);
const LOST_PERCENT: f64 = 1.0;
const FAR_DELAY: Duration = Duration::from_millis(10);
/// How many times as long a stream lasts on a far path, where losses are few.
const FAR_WINDOWS: u32 = 3;
/// Features with which a veth passes batches on whole: for tunnels, and for TCP without one.
const SEGMENTATION: [&str; 2] = [UDP_SEGMENTATION, "tx-tcp-segmentation"];
const BBR: &str = "bbr";

/// Payload received, round trips beside it, and thousands of system calls per gigabyte.
type Received = (Vec<TcpReport>, Option<LatencyReport>, Option<f64>);

impl Stand {
    pub(super) fn tcp(&mut self, tcp: Load, scenes: &[&Scene]) -> Result<Found> {
        let detour = self.set_veth(tcp.veth, true)?;
        let found = self.tcp_as_it_is(tcp, scenes);
        drop(detour);
        self.set_veth(tcp.veth, false)?;
        found
    }

    fn tcp_as_it_is(&mut self, tcp: Load, scenes: &[&Scene]) -> Result<Found> {
        let daemons = self.daemons()?;
        let shows = |figure| scenes.iter().any(|scene| scene.shows(figure));
        let wants = |figure| !daemons.is_empty() && shows(figure);
        if wants("MB") {
            self.forget_peak(&daemons)?;
        }
        let before = self.cpu(&daemons)?;
        let (windows, (unit, bits)) = match tcp.veth {
            Veth::Far(_) => (FAR_WINDOWS, ("Mbit/s", 1e6)),
            _ => (1, ("Gbit/s", 1e9)),
        };
        let window = self.window * windows;
        let counted = match self.contender.kind {
            Kind::Forward => window,
            _ => Duration::ZERO,
        };
        let (received, latency, calls) = self.send(tcp, window, counted)?;
        let cpu = (self.cpu(&daemons)? - before).as_secs_f64();
        let rate = |it: &TcpReport| it.bytes as f64 * 8.0 / bits / it.seconds;
        let mut found = Found::of([(unit, received.iter().map(rate).sum::<f64>())]);
        if !daemons.is_empty() {
            found.add([
                ("CPU s/GB", cpu / gigabytes(&received)),
                ("GB/CPU s", gigabytes(&received) / cpu),
                ("CPUs", cpu / received[0].seconds),
            ]);
        }
        if wants("MB") {
            found.add([("MB", self.peak(&daemons)? as f64 / 1e6)]);
        }
        if let Some(latency) = &latency {
            found.add(round_trips(latency)?);
        }
        found.add([("kcalls/GB", calls)]);
        if wants("kcalls/GB") && calls.is_none() {
            let tcp = Load { ping: false, ..tcp };
            match self.send(tcp, COUNTED + MARGIN, COUNTED) {
                Ok((.., calls)) => found.add([("kcalls/GB", calls)]),
                Err(error) => found.failure = Some(format!("system calls: {error:#}")),
            }
        }
        Ok(found)
    }

    /// Runs a load, optionally with probes beside it, or with the daemons' system calls counted for some time.
    fn send(&mut self, tcp: Load, window: Duration, counted: Duration) -> Result<Received> {
        let via = self.via();
        let load = |direction| load(direction, tcp.streams, window);
        let congestion = tcp.bbr.then_some(BBR);
        let one = load(tcp.way.unwrap_or(Direction::Up));
        self.ends().begin_tcp(via, one, congestion)?;
        let mut back = None;
        if tcp.way.is_none() {
            let [left, right] = self.namespaces();
            let mut ends = ends(left, right)?;
            ends.begin_tcp(via, load(Direction::Down), congestion)?;
            back = Some(ends);
        }
        let mut counter = None;
        if !counted.is_zero() {
            let daemons = self.daemons()?;
            counter = Some(count_syscalls(self.namespaces()[0], &daemons, counted)?);
        }
        let mut latency = None;
        if tcp.ping {
            thread::sleep(MARGIN);
            latency = Some(self.ends().ping(via, window.saturating_sub(2 * MARGIN)));
        }
        let mut received = vec![self.ends().finish_tcp(one)?];
        if let Some(ends) = &mut back {
            received.push(ends.finish_tcp(load(Direction::Down))?);
        }
        let used = received[0].congestion_control.as_deref();
        let is_allowed = !tcp.bbr || used == Some(BBR);
        ensure!(is_allowed, "the kernel does not allow bbr");
        ensure!(received[0].bytes > 0, "no data arrived");
        let mut kcalls_per_gb = None;
        if let Some(counter) = counter {
            let calls = counted_syscalls(counter)?;
            // perf may have seen only a part of the load.
            let part = (counted.as_secs_f64() / received[0].seconds).min(1.0);
            kcalls_per_gb = Some(calls as f64 / 1e3 / part / gigabytes(&received));
        }
        Ok((received, latency.transpose()?, kcalls_per_gb))
    }

    /// Runs one TCP stream for `window`; returns Gbit/s.
    pub(crate) fn one_stream(&mut self, way: Direction, window: Duration) -> Result<f64> {
        let (via, load) = (self.via(), load(way, 1, window));
        self.ends().begin_tcp(via, load, None)?;
        let report = self.ends().finish_tcp(load)?;
        ensure!(report.bytes > 0, "no data arrived");
        Ok(report.bytes as f64 * 8.0 / 1e9 / report.seconds)
    }

    /// Configures the veth as `veth` says, or undoes that.
    fn set_veth(&self, veth: Veth, on: bool) -> Result<Option<Detour>> {
        let mut detour = None;
        if let (Veth::Far(lost), true) = (veth, on) {
            let right = &self.bed.tunnel.right;
            let at = (VETH, right.outer(Underlay::V4).port());
            let percent = f64::from(lost) / 10.0;
            detour = Some(Detour::start(&right.namespace, at, FAR_DELAY, percent)?);
        }
        let features = match veth {
            Veth::Whole | Veth::Far(_) => &[][..],
            Veth::Cuts => &SEGMENTATION[..1],
            Veth::Loses => &SEGMENTATION[..],
        };
        for namespace in self.namespaces() {
            for feature in features {
                namespace.link().set_feature(VETH, feature, !on)?;
            }
            match (veth, on) {
                (Veth::Loses, true) => loss::lose_arriving(namespace, VETH, LOST_PERCENT)?,
                (Veth::Loses, false) => loss::lose_nothing(namespace)?,
                _ => {}
            }
        }
        Ok(detour)
    }

    /// CPU time of all since their start; of a forwarder with that of its children.
    fn cpu(&self, daemons: &[Pid]) -> io::Result<Duration> {
        match (self.contender.kind, &self.programs[..]) {
            (Kind::Forward, [program, ..]) => group_cpu_time(program.pid()),
            _ => daemons.iter().map(|daemon| cpu_time(*daemon)).sum(),
        }
    }
}

pub(super) fn load(direction: Direction, streams: u32, window: Duration) -> TcpLoad {
    TcpLoad {
        direction,
        streams,
        warmup: Duration::ZERO,
        window,
    }
}

fn gigabytes(received: &[TcpReport]) -> f64 {
    received.iter().map(|it| it.bytes as f64 / 1e9).sum()
}
