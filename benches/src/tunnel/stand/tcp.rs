//! Bulk TCP on a stand, with its costs.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::measure::{Direction, Ends, TcpLoad, process};
use convoy_lab::traffic::{Agent, LatencyReport, TcpReport};
use convoy_lab::wireguard::Underlay;
use convoy_lab::{Detour, Pid, UDP_SEGMENTATION, loss};

use super::{Found, MARGIN, Stand, round_trips};
use crate::tunnel::scenes::{Figure, Tcp, Veth};
use crate::tunnel::syscalls;

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
    pub(super) fn tcp(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        self.set_veth(tcp.veth, true)?;
        let found = self.tcp_as_it_is(tcp, wanted);
        self.set_veth(tcp.veth, false)?;
        found
    }

    fn tcp_as_it_is(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        let daemons = self.daemons()?;
        let of = |figure| daemons.as_ref().filter(|_| wanted.contains(&figure));
        let (of_memory, of_calls) = (of(Figure::Memory), of(Figure::Syscalls));
        if of_memory.is_some() {
            self.forget_peak()?;
        }
        let before = daemons.as_deref().map(cpu_seconds).transpose()?;
        let window = self.window * if tcp.is_far() { FAR_WINDOWS } else { 1 };
        let (received, latency, _) = self.send(tcp, window, &[])?;
        let after = daemons.as_deref().map(cpu_seconds).transpose()?;
        let cpu = after.zip(before).map(|(after, before)| after - before);
        let unit = if tcp.is_far() { 1e6 } else { 1e9 };
        let rates = received
            .iter()
            .map(|it| it.bytes as f64 * 8.0 / unit / it.seconds);
        let memory = of_memory.map(|daemons| self.peak(daemons)).transpose()?;
        let counted = of_calls.map(|daemons| self.calls_per_gb(tcp, daemons));
        let (calls, failure) = match counted.transpose() {
            Ok(calls) => (calls, None),
            Err(error) => (None, Some(format!("system calls: {error:#}"))),
        };
        let figures = [
            (Figure::Main, Some(rates.sum())),
            (
                Figure::Cpu,
                cpu.map(|seconds| seconds / gigabytes(&received)),
            ),
            (Figure::Memory, memory.map(|bytes| bytes as f64 / 1e6)),
            (Figure::Syscalls, calls.map(|calls| calls / 1e3)),
        ];
        let figures = figures.into_iter();
        let mut found = Found::of(figures.filter_map(|(figure, it)| Some((figure, it?))));
        if let Some(latency) = &latency {
            found.figures.extend(round_trips(latency)?);
        }
        found.failure = failure;
        Ok(found)
    }

    /// Runs a load, optionally with probes beside it. Counts the system calls of `counted` in a part of it.
    fn send(&mut self, tcp: Tcp, window: Duration, counted: &[Pid]) -> anyhow::Result<Received> {
        let via = self.via();
        let load = |direction| TcpLoad {
            direction,
            streams: tcp.streams,
            warmup: Duration::ZERO,
            window,
        };
        let congestion = tcp.bbr.then_some(BBR);
        let one = load(tcp.way.unwrap_or(Direction::Up));
        self.ends().begin_tcp(via, one, congestion)?;
        let mut back = None;
        if tcp.way.is_none() {
            let mut ends = self.more_ends()?;
            ends.begin_tcp(via, load(Direction::Down), congestion)?;
            back = Some(ends);
        }
        let mut counter = None;
        if !counted.is_empty() {
            counter = Some(syscalls::count(self.namespaces()[0], counted, COUNTED)?);
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
        ensure!(
            !tcp.bbr || used == Some(BBR),
            "the kernel does not allow bbr"
        );
        ensure!(received[0].bytes > 0, "no data arrived");
        let calls = counter.map(syscalls::counted).transpose()?.flatten();
        Ok((received, latency.transpose()?, calls))
    }

    /// Agents for a second load at the same time.
    fn more_ends(&self) -> anyhow::Result<Ends> {
        let [left, right] = self.namespaces();
        let agent = |namespace| Agent::spawn(crate::agent::agent(namespace));
        Ok(Ends::new(agent(left)?, agent(left)?, agent(right)?)?)
    }

    /// Starts one TCP stream for `window`; [`Ends::finish_tcp`] waits for its end.
    pub(super) fn begin(&mut self, way: Direction, window: Duration) -> anyhow::Result<TcpLoad> {
        let load = TcpLoad {
            direction: way,
            streams: 1,
            warmup: Duration::ZERO,
            window,
        };
        let via = self.via();
        self.ends().begin_tcp(via, load, None)?;
        Ok(load)
    }

    /// Runs one TCP stream for `window`; returns Gbit/s.
    pub(crate) fn one_stream(&mut self, way: Direction, window: Duration) -> anyhow::Result<f64> {
        let load = self.begin(way, window)?;
        let report = self.ends().finish_tcp(load)?;
        ensure!(report.bytes > 0, "no data arrived");
        Ok(report.bytes as f64 * 8.0 / 1e9 / report.seconds)
    }

    /// System calls per gigabyte received in the same run.
    fn calls_per_gb(&mut self, tcp: Tcp, daemons: &[Pid]) -> anyhow::Result<f64> {
        let tcp = Tcp { ping: false, ..tcp };
        let (received, _, calls) = self.send(tcp, COUNTED + MARGIN, daemons)?;
        let calls = calls.context("perf counted nothing")? as f64;
        // perf has seen a part of the load.
        let whole = calls * received[0].seconds / COUNTED.as_secs_f64();
        Ok(whole / gigabytes(&received))
    }

    /// Configures the veth as `veth` says, or undoes that.
    fn set_veth(&mut self, veth: Veth, on: bool) -> anyhow::Result<()> {
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

fn gigabytes(received: &[TcpReport]) -> f64 {
    received.iter().map(|it| it.bytes as f64 / 1e9).sum()
}

/// CPU time of all since their start.
fn cpu_seconds(daemons: &[Pid]) -> anyhow::Result<f64> {
    let each = daemons.iter().map(|&daemon| process::cpu_time(daemon));
    let each: Vec<Duration> = each.collect::<Result<_, _>>()?;
    Ok(each.iter().map(Duration::as_secs_f64).sum())
}
