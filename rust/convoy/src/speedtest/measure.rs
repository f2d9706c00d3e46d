//! One test over one path.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::measure::{
    self, Attempt, Counters, Direction, Ends, Range, Readings, Stage, TcpLoad, Trial, UdpLoad,
    highest_rate,
};
use convoy_lab::traffic::{LatencyReport, UdpReceived, UdpSent};
use convoy_lab::wireguard::Tunnel;

use super::args::{Load, Test};
use super::progress::Progress;
use super::report::{Histograms, Run};

const WARMUP: Duration = Duration::from_millis(500);
/// How long the latency without load is measured.
pub(super) const IDLE_PLANNED: Duration = Duration::from_secs(1);
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

/// How long a test takes, for the progress bar.
pub(super) fn planned(test: Test, window: Duration) -> Duration {
    match test.load() {
        Load::Tcp { .. } => WARMUP + window,
        Load::Udp { .. } => PROBE.min(window) * USUAL_PROBES + window,
    }
}

impl Path<'_> {
    /// Measures the idle latency, then runs `tests`.
    pub(super) fn run_all(&mut self, tests: &[Test]) -> anyhow::Result<Vec<Run>> {
        self.progress.step("idle latency", IDLE_PLANNED);
        let ping_idle_ms = self.ends.ping(self.via, IDLE_PLANNED)?.median_ms;
        let mut runs = Vec::new();
        for &test in tests {
            let name = test.to_string();
            self.progress.step(&name, planned(test, self.window));
            let run = self.run(test).context(name)?;
            runs.push(Run {
                ping_idle_ms,
                ..run
            });
        }
        Ok(runs)
    }

    /// Runs one test.
    pub(super) fn run(&mut self, test: Test) -> anyhow::Result<Run> {
        let name = test.to_string();
        let run = match test.load() {
            Load::Tcp { direction, streams } => self.tcp(&name, direction, streams),
            Load::Udp { payload } => self.udp(&name, payload),
        };
        if let Some(tunnel) = &mut self.tunnel {
            // A daemon that ended is the reason for whatever else went wrong.
            measure::check(tunnel)?;
        }
        run
    }

    fn tcp(&mut self, name: &str, direction: Direction, streams: u32) -> anyhow::Result<Run> {
        let load = TcpLoad {
            direction,
            streams,
            warmup: WARMUP,
            window: self.window,
        };
        let probing = self.window.saturating_sub(PING_MARGIN);
        self.ends.begin_tcp(self.via, load)?;
        let before = self.read()?;
        self.ends.begin_ping(self.via, probing)?;
        let received = self.ends.finish_tcp(load)?;
        let after = self.read()?;
        let latency = self.ends.finish_ping(probing)?;

        let mut run = Run::named(name);
        run.gbps = Some(gbps(received.bytes, received.seconds));
        note_latency(&mut run, latency);
        note_usage(&mut run, before, after, direction, received.bytes);
        Ok(run)
    }

    fn udp(&mut self, name: &str, payload: usize) -> anyhow::Result<Run> {
        let mut confirmation = Run::named(name);
        let found = highest_rate(RATES, |attempt| {
            let (trial, run) = self.udp_attempt(name, payload, attempt)?;
            if attempt.stage == Stage::Confirm {
                confirmation = run;
            }
            anyhow::Ok(trial)
        })?;
        let mut run = confirmation;
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
    ) -> anyhow::Result<(Trial, Run)> {
        let kpps = attempt.rate_pps / 1e3;
        let (word, duration) = match attempt.stage {
            Stage::Probe => ("probing", PROBE.min(self.window)),
            Stage::Confirm => ("confirming", self.window),
        };
        self.progress
            .note(&format!("{name}: {word} {kpps:.1} kpps"));
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

        let mut run = Run::named(name);
        let bytes = received.packets * payload as u64;
        run.gbps = Some(gbps(bytes, sent.seconds));
        run.loss = Some(trial.loss);
        run.reordered = Some(received.reordered);
        if attempt.stage == Stage::Confirm {
            note_latency(&mut run, self.ends.finish_ping(probing)?);
        }
        note_usage(&mut run, before, after, Direction::Up, bytes);
        Ok((trial, run))
    }

    fn read(&mut self) -> anyhow::Result<Option<Readings>> {
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
    run.syscalls_per_gb = syscalls(&near)
        .zip(syscalls(&far))
        .map(|(near, far)| (near + far) as f64 / gigabytes);
}

fn between(before: Option<Counters>, after: Option<Counters>) -> Option<Counters> {
    Some(after?.since(&before?))
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
    use super::*;
    use convoy_lab::measure::Reading;

    fn readings(cpu_ms: u64, counters: Option<&str>) -> Option<Readings> {
        let reading = || Reading {
            cpu: Duration::from_millis(cpu_ms),
            counters: counters.map(|json| {
                serde_json::from_str::<convoy_stats::Report>(json)
                    .unwrap()
                    .counters
            }),
        };
        Some(Readings {
            left: reading(),
            right: reading(),
        })
    }

    #[test]
    fn cpu_time_and_system_calls_are_of_both_daemons_and_a_gigabyte() {
        let before = r#"{"counters":{"syscalls":{"read":100}}}"#;
        let after = r#"{"counters":{"syscalls":{"read":400},
            "histograms":{"packets_per_read":[0,0,8]}}}"#;
        let mut run = Run::named("tcp-up");
        note_usage(
            &mut run,
            readings(1_000, Some(before)),
            readings(2_500, Some(after)),
            Direction::Up,
            2_000_000_000,
        );
        assert_eq!(run.cpu_s_per_gb, Some(1.5));
        assert_eq!(run.syscalls_per_gb, Some(300.0));
        assert_eq!(run.packets_per_read, Some(2.0));
        assert_eq!(run.segments_per_send, None);
    }

    #[test]
    fn batches_are_shown_value_by_value_of_the_daemon_that_sends() {
        let nothing = r#"{"counters":{}}"#;
        let after = r#"{"counters":{"histograms":{"packets_per_read":[0,0,8],
            "packets_per_batch":[0,3,0],"segments_per_send":[0]}}}"#;
        let readings = |left: &str, right: &str| {
            let [left, right] = [left, right].map(|json| readings(0, Some(json)));
            left.zip(right).map(|(left, right)| Readings {
                right: right.right,
                ..left
            })
        };
        let histograms = |direction| {
            let mut run = Run::named("tcp");
            let before = readings(nothing, nothing);
            note_usage(&mut run, before, readings(after, nothing), direction, 1);
            run.histograms
        };
        let found = histograms(Direction::Up).unwrap();
        assert_eq!(found.packets_per_read, [0, 0, 8]);
        assert_eq!(found.packets_per_batch, [0, 3]);
        assert_eq!(found.segments_per_send, [] as [u64; 0]);
        assert_eq!(histograms(Direction::Down), None);
    }

    #[test]
    fn a_daemon_without_counters_still_has_cpu_time() {
        let mut run = Run::named("tcp-up");
        let (before, after) = (readings(0, None), readings(500, None));
        note_usage(&mut run, before, after, Direction::Up, 1_000_000_000);
        assert_eq!(run.cpu_s_per_gb, Some(1.0));
        assert_eq!(run.syscalls_per_gb, None);
    }

    #[test]
    fn a_run_that_delivered_nothing_has_no_costs() {
        let mut run = Run::named("tcp-up");
        note_usage(
            &mut run,
            readings(0, None),
            readings(5, None),
            Direction::Up,
            0,
        );
        assert_eq!(run.cpu_s_per_gb, None);
    }

    #[test]
    fn loss_is_what_was_sent_and_did_not_arrive() {
        let sent = UdpSent {
            packets: 1_000,
            seconds: 0.5,
            held_rate: true,
        };
        let received = UdpReceived {
            packets: 990,
            duplicates: 3,
            reordered: 0,
            socket_drops: 4,
            seconds: 0.5,
        };
        let trial = trial(sent, received);
        assert_eq!((trial.sent_pps, trial.loss), (2_000.0, 0.01));
        assert_eq!(trial.receiver_loss, 0.004);
    }
}
