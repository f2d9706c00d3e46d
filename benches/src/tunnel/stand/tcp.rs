//! Bulk TCP on a stand, with its costs.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use convoy_lab::measure::{Direction, TcpLoad, process};
use convoy_lab::traffic::{LatencyReport, TcpReport};
use convoy_lab::wireguard::Underlay;
use convoy_lab::{Detour, Pid, UDP_SEGMENTATION, loss};

use super::{Found, MARGIN, Stand, round_trips};
use crate::agent::ends;
use crate::programs::{count_syscalls, counted_syscalls};
use crate::tunnel::scenes::{Figure, Tcp, Veth};

const VETH: &str = "veth0";
/// System calls are counted in a separate run, since counting costs time.
const COUNTED: Duration = Duration::from_secs(1);
const LOST_PERCENT: f64 = 1.0;
const FAR_DELAY: Duration = Duration::from_millis(10);
/// How many times as long a stream lasts on a far path, where losses are few.
const FAR_WINDOWS: u32 = 3;
/// Features with which a veth passes batches on whole: for tunnels, and for TCP without one.
const SEGMENTATION: [&str; 2] = [UDP_SEGMENTATION, "tx-tcp-segmentation"];
const BBR: &str = "bbr";

/// Payload received, round trips beside it, and system calls.
type Received = (Vec<TcpReport>, Option<LatencyReport>, Option<u64>);

impl Stand {
    pub(super) fn tcp(&mut self, tcp: Tcp, wanted: &[Figure]) -> Result<Found> {
        self.set_veth(tcp.veth, true)?;
        let found = self.tcp_as_it_is(tcp, wanted);
        self.set_veth(tcp.veth, false)?;
        found
    }

    fn tcp_as_it_is(&mut self, tcp: Tcp, wanted: &[Figure]) -> Result<Found> {
        let daemons = self.daemons()?;
        let of = |figure| daemons.as_ref().filter(|_| wanted.contains(&figure));
        let (of_memory, of_calls) = (of(Figure::Memory), of(Figure::Syscalls));
        if let Some(daemons) = of_memory {
            self.forget_peak(daemons)?;
        }
        let before = daemons.as_deref().map(cpu_seconds).transpose()?;
        let window = self.window * if tcp.is_far() { FAR_WINDOWS } else { 1 };
        let (received, latency, _) = self.send(tcp, window, &[])?;
        let after = daemons.as_deref().map(cpu_seconds).transpose()?;
        let cpu = after.zip(before).map(|(after, before)| after - before);
        let unit = if tcp.is_far() { 1e6 } else { 1e9 };
        let rate = |it: &TcpReport| it.bytes as f64 * 8.0 / unit / it.seconds;
        let rates = received.iter().map(rate);
        let cost = cpu.map(|seconds| seconds / gigabytes(&received));
        let memory = of_memory.map(|daemons| self.peak(daemons)).transpose()?;
        let counted = of_calls.map(|daemons| self.calls_per_gb(tcp, daemons));
        let (calls, failure) = match counted.transpose() {
            Ok(calls) => (calls, None),
            Err(error) => (None, Some(format!("system calls: {error:#}"))),
        };
        let figures = [
            (Figure::Main, Some(rates.sum())),
            (Figure::Cpu, cost),
            (Figure::Memory, memory.map(|bytes| bytes as f64 / 1e6)),
            (Figure::Syscalls, calls.map(|calls| calls / 1e3)),
        ];
        let mut found = Found::of(figures);
        if let Some(latency) = &latency {
            found.figures.extend(round_trips(latency)?);
        }
        Ok(Found { failure, ..found })
    }

    /// Runs a load, optionally with probes beside it. Counts the system calls of `counted` in a part of it.
    fn send(&mut self, tcp: Tcp, window: Duration, counted: &[Pid]) -> Result<Received> {
        let via = self.via();
        let load = |direction| TcpLoad {
            streams: tcp.streams,
            ..stream(direction, window)
        };
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
        if !counted.is_empty() {
            counter = Some(count_syscalls(self.namespaces()[0], counted, COUNTED)?);
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
        let calls = counter.map(counted_syscalls).transpose()?.flatten();
        Ok((received, latency.transpose()?, calls))
    }

    /// Starts one TCP stream for `window`; [`convoy_lab::measure::Ends::finish_tcp`] waits for its end.
    pub(super) fn begin(&mut self, way: Direction, window: Duration) -> Result<TcpLoad> {
        let (via, load) = (self.via(), stream(way, window));
        self.ends().begin_tcp(via, load, None)?;
        Ok(load)
    }

    /// Runs one TCP stream for `window`; returns Gbit/s.
    pub(crate) fn one_stream(&mut self, way: Direction, window: Duration) -> Result<f64> {
        let load = self.begin(way, window)?;
        let report = self.ends().finish_tcp(load)?;
        ensure!(report.bytes > 0, "no data arrived");
        Ok(report.bytes as f64 * 8.0 / 1e9 / report.seconds)
    }

    /// System calls per gigabyte received in the same run.
    fn calls_per_gb(&mut self, tcp: Tcp, daemons: &[Pid]) -> Result<f64> {
        let tcp = Tcp { ping: false, ..tcp };
        let (received, _, calls) = self.send(tcp, COUNTED + MARGIN, daemons)?;
        let calls = calls.context("perf counted nothing")? as f64;
        // perf has seen a part of the load.
        let whole = calls * received[0].seconds / COUNTED.as_secs_f64();
        Ok(whole / gigabytes(&received))
    }

    /// Configures the veth as `veth` says, or undoes that.
    fn set_veth(&mut self, veth: Veth, on: bool) -> Result<()> {
        self.detour = None;
        if let (Veth::Far(lost), true) = (veth, on) {
            let right = &self.bed.tunnel.right;
            let at = (VETH, right.outer(Underlay::V4).port());
            let percent = f64::from(lost) / 10.0;
            self.detour = Some(Detour::start(&right.namespace, at, FAR_DELAY, percent)?);
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
        Ok(())
    }
}

fn stream(direction: Direction, window: Duration) -> TcpLoad {
    TcpLoad {
        direction,
        streams: 1,
        warmup: Duration::ZERO,
        window,
    }
}

fn gigabytes(received: &[TcpReport]) -> f64 {
    received.iter().map(|it| it.bytes as f64 / 1e9).sum()
}

/// CPU time of all since their start.
fn cpu_seconds(daemons: &[Pid]) -> Result<f64> {
    let each = daemons.iter().map(|&daemon| process::cpu_time(daemon));
    let each: Vec<Duration> = each.collect::<Result<_, _>>()?;
    Ok(each.iter().map(Duration::as_secs_f64).sum())
}
