//! One test over one path.

use std::{net::IpAddr, time::Duration};

use convoy_lab::{
    measure::{
        self, Attempt, Counters, Direction, Ends, Range, Readings, Stage, TcpLoad, Trial, UdpLoad,
        highest_rate,
    },
    traffic::{LatencyReport, TcpReport, UdpReceived, UdpSent},
    wireguard::Tunnel,
};

use super::{
    progress::Progress,
    report::{Histograms, Run},
    test::{BBR, Tcp, Test},
};
use crate::{Error, error::Step as _};

const WARMUP: Duration = Duration::from_millis(500);
/// How long the latency without load is measured.
const IDLE: Duration = Duration::from_secs(1);
/// How long the latency under TCP is measured, once its throughput has been counted.
const LOADED: Duration = Duration::from_secs(2);
/// Probing ends this much before the load does.
const PING_MARGIN: Duration = Duration::from_millis(200);
/// Length of a UDP probe; the confirmation takes as long as a TCP run.
const PROBE: Duration = Duration::from_millis(800);
/// Probes of an ordinary search, for the progress bar: doubling, bisection, repetitions.
const USUAL_PROBES: u32 = 14;
const RATES: Range = Range {
    start: 32_000.0,
    lowest: 1_000.0,
    highest: 4_000_000.0,
};

/// Where tests run.
pub(super) struct Path<'a> {
    pub(super) ends: &'a mut Ends,
    /// The far end's address.
    pub(super) via: IpAddr,
    /// The daemons on the way, where they are ours.
    pub(super) tunnel: Option<&'a mut Tunnel>,
    /// Counted time of a TCP run and of a UDP confirmation.
    pub(super) window: Duration,
    pub(super) progress: &'a Progress,
}

/// How long the tests take, for the progress bar.
pub(super) fn planned(tests: &[Test], window: Duration) -> Duration {
    let each = tests.iter().map(|test| planned_one(*test, window));
    IDLE + each.sum::<Duration>()
}

/// How long [`Path::throughput`] takes, for the progress bar.
pub(super) fn planned_throughput(window: Duration) -> Duration {
    WARMUP + window
}

fn planned_one(test: Test, window: Duration) -> Duration {
    match test {
        Test::Tcp(Tcp { ping: true, .. }) => planned_throughput(window),
        Test::Tcp(_) => planned_throughput(window) + planned_throughput(LOADED.min(window)),
        Test::Udp(_) => PROBE.min(window) * USUAL_PROBES + window,
    }
}

impl Path<'_> {
    /// Measures the idle latency, then runs `tests`.
    pub(super) fn run_all(&mut self, tests: &[Test]) -> Result<Vec<Run>, Error> {
        self.progress.step("idle latency", IDLE);
        let ping_idle_ms = self.ends.ping(self.via, IDLE)?.median_ms;
        let mut runs = Vec::new();
        for &test in tests {
            let name = test.to_string();
            self.progress.step(&name, planned_one(test, self.window));
            let run = self.run(test, &name).step(name)?;
            runs.push(Run {
                ping_idle_ms,
                ..run
            });
        }
        Ok(runs)
    }

    /// TCP up with one stream, in 10⁹ bits a second.
    pub(super) fn throughput(&mut self) -> Result<f64, Error> {
        let load = self.tcp_load(Direction::Up, 1, self.window);
        self.ends.begin_tcp(self.via, load)?;
        let received = self.ends.finish_tcp(load)?;
        Ok(gbps(received.bytes, received.seconds))
    }

    fn run(&mut self, test: Test, name: &str) -> Result<Run, Error> {
        let run = match test {
            Test::Tcp(tcp) => self.tcp(name, tcp),
            Test::Udp(payload) => self.udp(name, payload),
        };
        if let Some(tunnel) = &mut self.tunnel {
            // A daemon that ended is the reason for every other failure.
            measure::check(tunnel)?;
        }
        run
    }

    fn tcp(&mut self, name: &str, tcp: Tcp) -> Result<Run, Error> {
        let direction = tcp.direction();
        let load = self.tcp_load(direction, tcp.streams.count(), self.window);
        let probing = tcp.ping.then(|| self.window.saturating_sub(PING_MARGIN));
        self.begin_tcp(load, tcp)?;
        let before = self.read()?;
        let (received, latency) = self.finish_tcp(load, probing)?;
        let after = self.read()?;

        let mut run = Run::named(name);
        run.congestion_control = received.congestion_control;
        if tcp.bbr && run.congestion_control.as_deref() != Some(BBR) {
            return Ok(run);
        }
        run.gbps = Some(gbps(received.bytes, received.seconds));
        note_usage(&mut run, before, after, direction, received.bytes);
        let latency = match latency {
            Some(latency) => Some(latency),
            None => self.latency_under(tcp)?,
        };
        latency
            .into_iter()
            .for_each(|latency| note_latency(&mut run, latency));
        Ok(run)
    }

    /// In a run of its own: a ping beside it costs TCP some throughput.
    fn latency_under(&mut self, tcp: Tcp) -> Result<Option<LatencyReport>, Error> {
        let window = LOADED.min(self.window);
        let load = self.tcp_load(tcp.direction(), tcp.streams.count(), window);
        self.begin_tcp(load, tcp)?;
        Ok(self
            .finish_tcp(load, Some(window.saturating_sub(PING_MARGIN)))?
            .1)
    }

    fn begin_tcp(&mut self, load: TcpLoad, tcp: Tcp) -> Result<(), Error> {
        Ok(self
            .ends
            .begin_tcp_under(self.via, load, tcp.bbr.then_some(BBR))?)
    }

    fn finish_tcp(
        &mut self,
        load: TcpLoad,
        probing: Option<Duration>,
    ) -> Result<(TcpReport, Option<LatencyReport>), Error> {
        if let Some(probing) = probing {
            self.ends.begin_ping(self.via, probing)?;
        }
        let received = self.ends.finish_tcp(load)?;
        let latency = probing
            .map(|probing| self.ends.finish_ping(probing))
            .transpose()?;
        Ok((received, latency))
    }

    fn tcp_load(&self, direction: Direction, streams: u32, window: Duration) -> TcpLoad {
        TcpLoad {
            direction,
            streams,
            warmup: WARMUP,
            window,
        }
    }

    fn udp(&mut self, name: &str, payload: usize) -> Result<Run, Error> {
        let mut run = Run::named(name);
        let found = highest_rate(RATES, |attempt| {
            let (trial, attempted) = self.udp_attempt(name, payload, attempt)?;
            if attempt.stage == Stage::Confirm {
                run = attempted;
            }
            Ok::<_, Error>(trial)
        })?;
        run.kpps = found.map(|found| found.rate_pps / 1e3);
        run.confirmed = Some(found.is_some_and(|found| found.confirmed));
        run.generator_limited = found.map(|found| found.generator_limited);
        Ok(run)
    }

    fn udp_attempt(
        &mut self,
        name: &str,
        payload: usize,
        attempt: Attempt,
    ) -> Result<(Trial, Run), Error> {
        let (word, duration) = match attempt.stage {
            Stage::Probe => ("probing", PROBE.min(self.window)),
            Stage::Confirm => ("confirming", self.window),
        };
        let kpps = attempt.rate_pps / 1e3;
        self.progress.note(format!("{name}: {word} {kpps:.1} kpps"));
        let load = UdpLoad {
            payload,
            rate_pps: attempt.rate_pps,
            duration,
        };
        let probing = duration.saturating_sub(PING_MARGIN);
        self.ends.begin_udp(self.via, load)?;
        let before = self.read()?;
        if attempt.stage == Stage::Confirm {
            self.ends.begin_ping(self.via, probing)?;
        }
        let sent = self.ends.finish_sending_udp(load)?;
        let after = self.read()?;
        let received = self.ends.finish_receiving_udp()?;
        let trial = trial(sent, received);

        let bytes = received.packets * payload as u64;
        let mut run = Run {
            gbps: Some(gbps(bytes, sent.seconds)),
            loss: Some(trial.loss),
            reordered: Some(received.reordered),
            ..Run::named(name)
        };
        if attempt.stage == Stage::Confirm {
            note_latency(&mut run, self.ends.finish_ping(probing)?);
        }
        note_usage(&mut run, before, after, Direction::Up, bytes);
        Ok((trial, run))
    }

    fn read(&mut self) -> Result<Option<Readings>, Error> {
        let Some(tunnel) = &mut self.tunnel else {
            return Ok(None);
        };
        measure::check(tunnel)?;
        Ok(Some(measure::read(tunnel)?))
    }
}

fn trial(sent: UdpSent, received: UdpReceived) -> Trial {
    let lost = sent.packets.saturating_sub(received.packets);
    let share = |packets: u64| packets as f64 / sent.packets.max(1) as f64;
    Trial {
        sent_pps: sent.packets as f64 / sent.seconds,
        held_rate: sent.held_rate,
        loss: share(lost),
        receiver_loss: share(received.socket_drops.min(lost)),
    }
}

fn gbps(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1e9 / seconds
}

fn note_latency(run: &mut Run, latency: LatencyReport) {
    run.ping_loaded_ms = latency.median_ms;
    run.ping_loaded_p99_ms = latency.p99_ms;
}

fn note_usage(
    run: &mut Run,
    before: Option<Readings>,
    after: Option<Readings>,
    direction: Direction,
    bytes: u64,
) {
    let (Some(before), Some(after)) = (before, after) else {
        return;
    };
    if bytes == 0 {
        return;
    }
    let gigabytes = bytes as f64 / 1e9;
    let cpu = after.left.cpu + after.right.cpu - before.left.cpu - before.right.cpu;
    run.cpu_s_per_gb = Some(cpu.as_secs_f64() / gigabytes);

    let between = |before: Option<Counters>, after: Option<Counters>| Some(after?.since(&before?));
    let near = between(before.left.counters, after.left.counters);
    let far = between(before.right.counters, after.right.counters);
    let sender = match direction {
        Direction::Up => &near,
        Direction::Down => &far,
    };
    run.packets_per_read = sender.as_ref().and_then(Counters::packets_per_read);
    run.segments_per_send = sender.as_ref().and_then(Counters::segments_per_send);
    run.histograms = sender.as_ref().and_then(histograms);
    let syscalls = |counters: &Option<Counters>| counters.as_ref()?.total_syscalls();
    let both = syscalls(&near).zip(syscalls(&far));
    run.syscalls_per_gb = both.map(|(near, far)| (near + far) as f64 / gigabytes);
}

fn histograms(counters: &Counters) -> Option<Histograms> {
    let histogram = |name| Some(counters.histogram(name)?.to_vec());
    Some(Histograms {
        packets_per_read: histogram("packets_per_read")?,
        packets_per_batch: histogram("packets_per_batch")?,
        segments_per_send: histogram("segments_per_send")?,
    })
}

#[cfg(test)]
mod tests {
    use convoy_lab::measure::Reading;
    use serde_json::{Value, json};

    use super::*;

    /// The costs of a gigabyte after two readings, each of both daemons: CPU milliseconds, counters.
    fn noted(direction: Direction, readings: [(u64, [&Value; 2]); 2]) -> Run {
        let [before, after] = readings.map(|(cpu_ms, counters)| {
            let [left, right] = counters.map(|counters| Reading {
                cpu: Duration::from_millis(cpu_ms),
                counters: serde_json::from_value(counters.clone()).unwrap(),
            });
            Some(Readings { left, right })
        });
        let mut run = Run::default();
        note_usage(&mut run, before, after, direction, 1_000_000_000);
        run
    }

    #[test]
    fn costs_are_of_both_daemons_and_batches_of_the_one_that_sends() {
        let before = json!({"syscalls": {"read": 100}});
        let after = json!({"syscalls": {"read": 400}, "histograms": {"packets_per_read": [0, 0, 8],
            "packets_per_batch": [0, 3, 0], "segments_per_send": [0]}});
        let idle = json!({"syscalls": {"read": 100}});
        let readings = [(1_000, [&before, &before]), (2_500, [&after, &idle])];
        let up = noted(Direction::Up, readings);
        assert_eq!(
            (up.cpu_s_per_gb, up.syscalls_per_gb),
            (Some(3.0), Some(300.0))
        );
        assert_eq!(
            (up.packets_per_read, up.segments_per_send),
            (Some(2.0), None)
        );
        let found = up.histograms.unwrap();
        assert_eq!(
            (found.packets_per_read, found.packets_per_batch),
            (vec![0, 0, 8], vec![0, 3])
        );
        assert_eq!(found.segments_per_send, [] as [u64; 0]);
        assert_eq!(noted(Direction::Down, readings).histograms, None);
    }

    #[test]
    fn a_daemon_without_counters_has_cpu_time_and_a_run_that_delivered_nothing_no_costs() {
        let run = noted(
            Direction::Up,
            [(0, [&Value::Null; 2]), (500, [&Value::Null; 2])],
        );
        assert_eq!((run.cpu_s_per_gb, run.syscalls_per_gb), (Some(1.0), None));
        let mut nothing = Run::default();
        note_usage(&mut nothing, None, None, Direction::Up, 0);
        assert_eq!(nothing, Run::default());
    }

    #[test]
    fn packets_that_were_sent_and_did_not_arrive_are_lost() {
        let sent = UdpSent {
            packets: 1_000,
            seconds: 0.5,
            held_rate: true,
        };
        let received = UdpReceived {
            packets: 990,
            reordered: 0,
            socket_drops: 4,
        };
        let trial = trial(sent, received);
        assert_eq!((trial.sent_pps, trial.loss), (2_000.0, 0.01));
        assert_eq!(trial.receiver_loss, 0.004);
    }
}
