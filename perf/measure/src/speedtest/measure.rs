//! One test over one path.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use convoy_lab::measure::{
    self, Attempt, Counters, Direction, Ends, Range, Readings, Stage, TcpLoad, Trial, UdpLoad,
    highest_rate,
};
use convoy_lab::traffic::LatencyReport;
use convoy_lab::wireguard::Tunnel;

use super::args::SpeedtestArgs;
use super::progress::Progress;
use super::report::{Run, Threads};
use super::test::{Load, Tcp, Test};

const WARMUP: Duration = Duration::from_millis(500);
/// Duration of measuring the latency without load.
const IDLE: Duration = Duration::from_secs(1);
/// Duration of measuring the latency under TCP, after counting its throughput.
const LOADED: Duration = Duration::from_secs(2);
/// Time by which probing ends before the load.
const PING_MARGIN: Duration = Duration::from_millis(200);
/// Length of a UDP probe; the confirmation takes as long as a TCP run.
const PROBE: Duration = Duration::from_millis(800);
const RATES: Range = Range {
    start: 32_000.0,
    lowest: 1_000.0,
    highest: 4_000_000.0,
};
/// Threads that take less than one part in this many of the CPU time are left out.
const NEGLIGIBLE: u32 = 1_000;
/// The congestion control that tests with this name request.
const BBR: &str = "bbr";

/// Packets per TUN read (segments of a super-packet count), packets per batch from the reader to the event
/// loop, and datagrams per UDP send.
const HISTOGRAMS: [&str; 3] = ["packets_per_read", "packets_per_batch", "segments_per_send"];

/// Where tests run.
pub(super) struct Path<'a> {
    pub(super) ends: &'a mut Ends,
    /// The far end's address.
    pub(super) via: IpAddr,
    /// The daemons on the way, if this program started them.
    pub(super) tunnel: Option<&'a mut Tunnel>,
    pub(super) args: &'a SpeedtestArgs,
    pub(super) progress: &'a Progress,
}

impl Path<'_> {
    /// Measures the idle latency, then runs all tests.
    pub(super) fn run_all(&mut self) -> Result<Vec<Run>> {
        self.progress.step("idle latency");
        let ping_idle_ms = self.ends.ping(self.via, IDLE)?.median_ms;
        let mut runs = Vec::new();
        for Test { name, load } in &self.args.tests {
            self.progress.step(name);
            let run = match *load {
                Load::Tcp(tcp) => self.tcp(tcp),
                Load::Udp(payload) => self.udp(name, payload),
            };
            if let Some(tunnel) = &mut self.tunnel {
                // A daemon that ended explains every other failure.
                measure::check(tunnel).context(name.clone())?;
            }
            runs.push(Run {
                name: name.clone(),
                ping_idle_ms,
                ..run.context(name.clone())?
            });
        }
        Ok(runs)
    }

    /// TCP up with one stream, in 10⁹ bits per second.
    pub(super) fn throughput(&mut self) -> Result<Option<f64>> {
        Ok(self.tcp_run(Tcp::UP, self.args.window())?.gbps)
    }

    fn tcp(&mut self, tcp: Tcp) -> Result<Run> {
        let run = self.tcp_run(tcp, self.args.window())?;
        if tcp.bbr && run.congestion_control.as_deref() != Some(BBR) {
            return Ok(Run {
                congestion_control: run.congestion_control,
                ..Run::default()
            });
        }
        if tcp.ping {
            return Ok(run);
        }
        // A separate run, since a ping beside it costs TCP some throughput.
        let probed = self.tcp_run(Tcp { ping: true, ..tcp }, LOADED.min(self.args.window()))?;
        Ok(Run {
            ping_loaded_ms: probed.ping_loaded_ms,
            ping_loaded_p99_ms: probed.ping_loaded_p99_ms,
            ..run
        })
    }

    fn tcp_run(&mut self, tcp: Tcp, window: Duration) -> Result<Run> {
        let load = TcpLoad {
            direction: tcp.direction,
            streams: tcp.streams,
            warmup: WARMUP,
            window,
        };
        let probing = window.saturating_sub(PING_MARGIN);
        let congestion_control = tcp.bbr.then_some(BBR);
        self.ends.begin_tcp(self.via, load, congestion_control)?;
        let before = self.read()?;
        if tcp.ping {
            self.ends.begin_ping(self.via, probing)?;
        }
        let received = self.ends.finish_tcp(load)?;
        let mut run = Run {
            gbps: Some(gbps(received.bytes, received.seconds)),
            congestion_control: received.congestion_control,
            ..Run::default()
        };
        if tcp.ping {
            note_latency(&mut run, self.ends.finish_ping(probing)?);
        }
        let usage = before.zip(self.read()?);
        note_usage(&mut run, usage, tcp.direction, received.bytes);
        Ok(run)
    }

    fn udp(&mut self, name: &str, payload: usize) -> Result<Run> {
        let mut run = Run::default();
        let found = highest_rate(RATES, |attempt| {
            self.udp_attempt(name, payload, attempt, &mut run)
        })?;
        run.kpps = found.map(|found| found.rate_pps / 1e3);
        run.confirmed = Some(found.is_some_and(|found| found.confirmed));
        run.generator_limited = found.map(|found| found.generator_limited);
        Ok(run)
    }

    /// Notes the figures of a confirmation in `run`.
    fn udp_attempt(
        &mut self,
        name: &str,
        payload: usize,
        Attempt { rate_pps, stage }: Attempt,
        run: &mut Run,
    ) -> Result<Trial> {
        let (word, duration) = match stage {
            Stage::Probe => ("probing", PROBE.min(self.args.window())),
            Stage::Confirm => ("confirming", self.args.window()),
        };
        let kpps = rate_pps / 1e3;
        self.progress.note(format!("{name}: {word} {kpps:.1} kpps"));
        let load = UdpLoad {
            payload,
            rate_pps,
            duration,
        };
        let probing = duration.saturating_sub(PING_MARGIN);
        self.ends.begin_udp(self.via, load)?;
        let before = self.read()?;
        if stage == Stage::Confirm {
            self.ends.begin_ping(self.via, probing)?;
        }
        let sent = self.ends.finish_sending_udp(load)?;
        let usage = before.zip(self.read()?);
        let received = self.ends.finish_receiving_udp()?;
        let trial = Trial::of(sent, received);
        if stage == Stage::Confirm {
            let bytes = received.packets * payload as u64;
            *run = Run {
                gbps: Some(gbps(bytes, sent.seconds)),
                loss: Some(trial.loss),
                reordered: Some(received.reordered),
                ..Run::default()
            };
            note_latency(run, self.ends.finish_ping(probing)?);
            note_usage(run, usage, Direction::Up, bytes);
        }
        Ok(trial)
    }

    /// Reads both daemons, if this program started them.
    fn read(&mut self) -> Result<Option<Readings>> {
        let Some(tunnel) = &mut self.tunnel else {
            return Ok(None);
        };
        measure::check(tunnel)?;
        Ok(Some(measure::read(tunnel)?))
    }
}

fn gbps(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1e9 / seconds
}

fn note_latency(run: &mut Run, latency: LatencyReport) {
    run.ping_loaded_ms = latency.median_ms;
    run.ping_loaded_p99_ms = latency.p99_ms;
}

/// Notes the cost per gigabyte, given readings before and after the load. A run that delivered nothing has none.
fn note_usage(
    run: &mut Run,
    usage: Option<(Readings, Readings)>,
    direction: Direction,
    bytes: u64,
) {
    let Some((before, after)) = usage.filter(|_| bytes > 0) else {
        return;
    };
    let gigabytes = bytes as f64 / 1e9;
    let cpu = after.left.cpu + after.right.cpu - before.left.cpu - before.right.cpu;
    run.cpu_s_per_gb = Some(cpu.as_secs_f64() / gigabytes);
    // First the sender.
    let mut daemons = [(before.left, after.left), (before.right, after.right)];
    if direction == Direction::Down {
        daemons.reverse();
    }
    let [sender, receiver] = daemons.each_ref().map(|(before, after)| {
        let spent = after.threads.iter().map(|(name, &time)| {
            let before = before.threads.get(name).copied().unwrap_or_default();
            (name.clone(), time.saturating_sub(before))
        });
        let busy = spent.filter(|(_, spent)| *spent * NEGLIGIBLE >= cpu);
        busy.map(|(name, spent)| (name, spent.as_secs_f64() / gigabytes))
            .collect()
    });
    run.threads = Some(Threads { sender, receiver });

    let [sender, receiver] =
        daemons.map(|(before, after)| Some(after.counters?.since(&before.counters?)));
    let syscalls = |counters: &Option<Counters>| counters.as_ref()?.total_syscalls();
    let both = syscalls(&sender).zip(syscalls(&receiver));
    run.syscalls_per_gb = both.map(|(sender, receiver)| (sender + receiver) as f64 / gigabytes);
    run.packets_per_read = sender.as_ref().and_then(Counters::packets_per_read);
    run.segments_per_send = sender.as_ref().and_then(Counters::segments_per_send);
    run.histograms = sender.as_ref().and_then(histograms);
}

fn histograms(counters: &Counters) -> Option<BTreeMap<&'static str, Vec<u64>>> {
    let found = HISTOGRAMS.map(|name| Some((name, counters.histogram(name)?.to_vec())));
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use convoy_lab::measure::Reading;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn costs_are_of_both_daemons_and_batches_of_the_one_that_sends() {
        let idle = json!({"syscalls": {"read": 100}});
        let busy = json!({"syscalls": {"read": 400}, "histograms": {"packets_per_read": [0, 0, 8],
            "packets_per_batch": [0, 3, 0], "segments_per_send": [0]}});
        let readings = |cpu_ms, counters: [&Value; 2]| {
            let [left, right] = counters.map(|counters| Reading {
                cpu: Duration::from_millis(cpu_ms),
                threads: [("tunnel", cpu_ms / 2), ("tun-reader", 7)]
                    .map(|(name, ms)| (name.to_owned(), Duration::from_millis(ms)))
                    .into(),
                counters: serde_json::from_value(counters.clone()).unwrap(),
            });
            Readings { left, right }
        };
        let noted = |direction, before, after| {
            let usage = (readings(1_000, before), readings(2_500, after));
            let mut run = Run::default();
            note_usage(&mut run, Some(usage), direction, 1_000_000_000);
            run
        };
        let up = noted(Direction::Up, [&idle; 2], [&busy, &idle]);
        let costs = (up.cpu_s_per_gb, up.syscalls_per_gb);
        assert_eq!(costs, (Some(3.0), Some(300.0)));
        let threads = up.threads.as_ref().unwrap();
        let idle_ones_are_left_out = BTreeMap::from([("tunnel".to_owned(), 0.75)]);
        assert_eq!(threads.sender, idle_ones_are_left_out);
        assert_eq!(up.threads_ceiling(), Some(8.0 / 0.75));
        let means = (up.packets_per_read, up.segments_per_send);
        assert_eq!(means, (Some(2.0), None));
        let seen = [vec![0, 0, 8], vec![0, 3], vec![]];
        let seen = HISTOGRAMS.into_iter().zip(seen).collect();
        assert_eq!(up.histograms, Some(seen));
        let down = noted(Direction::Down, [&idle; 2], [&busy, &idle]);
        assert_eq!(down.histograms, None);
        let foreign = noted(Direction::Up, [&Value::Null; 2], [&Value::Null; 2]);
        let costs = (foreign.cpu_s_per_gb, foreign.syscalls_per_gb);
        assert_eq!(costs, (Some(3.0), None));
    }
}
