//! Bulk TCP on a stand, with its costs.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use convoy_lab::measure::{Direction, TcpLoad, process};
use convoy_lab::traffic::LatencyReport;
use convoy_lab::{Pid, UDP_SEGMENTATION, loss};
use serde_json::json;

use super::{Found, MARGIN, Stand, round_trips};
use crate::tunnel::iperf::{self, Load, Received, Way};
use crate::tunnel::rows::{Figure, Set, Tcp, Veth};

const VETH: &str = "veth0";
/// System calls are counted in a separate run, since counting costs time.
const COUNTED: Duration = Duration::from_secs(1);
const LOST_PERCENT: f64 = 1.0;
/// Features with which a veth passes batches on whole: for tunnels, and for TCP without one.
const SEGMENTATION: [&str; 2] = [UDP_SEGMENTATION, "tx-tcp-segmentation"];
const ONE_STREAM: Load = Load {
    way: Way::Up,
    streams: 1,
    congestion: None,
};

impl Stand {
    pub(super) fn tcp(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        self.set_veth(tcp.veth, true)?;
        let found = self.tcp_as_it_is(tcp, wanted);
        self.set_veth(tcp.veth, false)?;
        found
    }

    fn tcp_as_it_is(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        let daemons = self.daemons()?;
        let of_memory = daemons
            .as_ref()
            .filter(|_| wanted.contains(&Figure::Memory));
        let of_calls = daemons
            .as_ref()
            .filter(|_| wanted.contains(&Figure::Syscalls));
        if of_memory.is_some() {
            self.forget_peak()?;
        }
        let before = daemons.as_deref().map(cpu_seconds).transpose()?;
        let (received, latency) = self.send(tcp, self.window)?;
        // All bytes of the run are counted, so all of its CPU time is, too.
        let after = daemons.as_deref().map(cpu_seconds).transpose()?;
        let cpu = after.zip(before).map(|(after, before)| after - before);
        let gigabytes = received.bytes as f64 / 1e9;
        let memory = of_memory.map(|daemons| self.peak(daemons)).transpose()?;
        let counted = of_calls.map(|daemons| self.count_calls(tcp.load, daemons));
        let (calls, failure) = match counted.transpose() {
            Ok(calls) => (calls, None),
            Err(error) => (None, Some(format!("system calls: {error:#}"))),
        };
        let thousands = calls.map(|(counted, bytes)| counted as f64 / 1e3 / (bytes as f64 / 1e9));
        let figures = [
            (Figure::Main, Some(received.gbps)),
            (Figure::Cpu, cpu.map(|seconds| seconds / gigabytes)),
            (Figure::Memory, memory.map(|bytes| bytes as f64 / 1e6)),
            (Figure::Syscalls, thousands),
        ];
        let figures = figures.into_iter();
        let figures = figures.filter_map(|(figure, value)| Some((figure, value?)));
        let mut found = Found::raw(json!({
            "bytes": received.bytes, "gbps": received.gbps, "cpu_seconds": cpu,
            "peak_memory_bytes": memory, "calls_and_bytes": calls, "latency": latency,
        }))
        .with(figures);
        if let Some(latency) = &latency {
            found.figures.extend(round_trips(latency)?);
        }
        found.failures.extend(failure);
        Ok(found)
    }

    /// Runs a load, optionally with probes beside it.
    fn send(
        &mut self,
        tcp: Tcp,
        window: Duration,
    ) -> anyhow::Result<(Received, Option<LatencyReport>)> {
        if self.set != Set::Programs {
            return Ok((self.send_by_agents(tcp.load, window, &[])?, None));
        }
        let running = self.load(tcp.load, window)?;
        if !tcp.ping {
            return Ok((running.finish()?, None));
        }
        thread::sleep(MARGIN);
        let via = self.via();
        let latency = self.ends().ping(via, window.saturating_sub(2 * MARGIN));
        let received = running.finish()?;
        Ok((received, Some(latency?)))
    }

    /// Runs a load between the traffic agents; iperf3 does not speak SOCKS5.
    fn send_by_agents(
        &mut self,
        load: Load,
        window: Duration,
        counted: &[Pid],
    ) -> anyhow::Result<Received> {
        let direction = match load.way {
            Way::Up => Direction::Up,
            Way::Down => Direction::Down,
            Way::Both => bail!("agents send one way at a time"),
        };
        let tcp = TcpLoad {
            direction,
            streams: load.streams,
            warmup: Duration::ZERO,
            window: if counted.is_empty() {
                window
            } else {
                window + MARGIN
            },
        };
        let via = self.via();
        self.ends().begin_tcp(via, tcp, None)?;
        let mut counting = None;
        if !counted.is_empty() {
            let mut perf = iperf::counter(self.namespaces()[0], counted);
            perf.arg("sleep").arg(window.as_secs_f64().to_string());
            counting = Some(perf.stdout(Stdio::null()).spawn().context("start perf")?);
        }
        let report = self.ends().finish_tcp(tcp);
        let printed = counting.map(std::process::Child::wait_with_output);
        let printed = printed.transpose().context("wait for perf")?;
        let report = report?;
        let calls =
            printed.and_then(|output| iperf::calls(&String::from_utf8_lossy(&output.stderr)));
        // perf has seen a part of the load.
        let whole = |calls| (calls as f64 * report.seconds / window.as_secs_f64()) as u64;
        Ok(Received {
            bytes: report.bytes,
            gbps: report.bytes as f64 * 8.0 / 1e9 / report.seconds,
            calls: calls.map(whole),
        })
    }

    /// Starts one TCP stream for `window`.
    pub(crate) fn one_stream(&self, way: Way, window: Duration) -> anyhow::Result<iperf::Running> {
        self.load(Load { way, ..ONE_STREAM }, window)
    }

    fn load(&self, load: Load, window: Duration) -> anyhow::Result<iperf::Running> {
        let [left, right] = self.namespaces();
        iperf::start(left, right, self.via(), load, window, &[])
    }

    /// System calls, and the bytes received in the same run.
    fn count_calls(&mut self, load: Load, daemons: &[Pid]) -> anyhow::Result<(u64, u64)> {
        let received = match self.set {
            Set::Rootless | Set::Gateways => self.send_by_agents(load, COUNTED, daemons)?,
            Set::Programs => {
                let [left, right] = self.namespaces();
                iperf::start(left, right, self.via(), load, COUNTED, daemons)?.finish()?
            }
        };
        let calls = received.calls.context("perf counted nothing")?;
        Ok((calls, received.bytes))
    }

    /// Configures the veth as `veth` says, or undoes that.
    fn set_veth(&self, veth: Veth, on: bool) -> anyhow::Result<()> {
        let features = match veth {
            Veth::Whole => &[][..],
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

/// CPU time of all since their start.
fn cpu_seconds(daemons: &[Pid]) -> anyhow::Result<f64> {
    let each = daemons.iter().map(|&daemon| process::cpu_time(daemon));
    let each: Vec<Duration> = each.collect::<Result<_, _>>()?;
    Ok(each.iter().map(Duration::as_secs_f64).sum())
}
