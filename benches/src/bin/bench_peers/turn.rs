//! All tests of one contestant in one repetition.

mod plan;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use convoy_benches::peers::Row;
use convoy_lab::measure::{self, Bed};
use convoy_lab::{UDP_SEGMENTATION, set_feature};
use serde::Serialize;

use crate::contestants::Contestant;
use crate::iperf::{self, Load};
use crate::outcome;
use crate::ping;
use crate::udp::{self, Probe};

use plan::Test;

/// The interfaces at both ends, as the lab names them.
pub(crate) const TUNNEL: &str = "wg0";
pub(crate) const VETH: &str = "veth0";
/// How long the CPU time without traffic is counted, and after which rest.
const IDLE: Duration = Duration::from_millis(750);
const REST: Duration = Duration::from_millis(250);
const PING: Duration = Duration::from_secs(1);
/// Of a TCP run, before and after the pings in it.
const PING_MARGIN: Duration = Duration::from_millis(300);
const OFFERED_PPS: f64 = 200_000.0;

/// Rates that earlier turns found, by payload: searches begin there.
pub(crate) type KnownRates = BTreeMap<usize, f64>;

/// What a turn measured.
pub(crate) type Outcome = outcome::Outcome<Row, Details>;

/// Beside the figures.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Details {
    pub(crate) tcp: Vec<TcpRun>,
    pub(crate) udp: Vec<Probe>,
}

/// One run of iperf3.
#[derive(Debug, Serialize)]
pub(crate) struct TcpRun {
    row: Row,
    bytes: u64,
    gbps: f64,
    /// Of both daemons, in this run.
    cpu_seconds: Option<f64>,
}

/// Where a turn is measured: through the tunnel, or beside it.
pub(crate) struct Turn<'a> {
    bed: &'a mut Bed,
    via: IpAddr,
    /// None beside the tunnel.
    contestant: Option<&'a Contestant>,
    window: Duration,
    known: &'a mut KnownRates,
    outcome: Outcome,
}

impl<'a> Turn<'a> {
    /// Through the tunnel, with new daemons of `contestant`; with none beside it, over the veth:
    /// the ceiling, and what the generators reach.
    pub(crate) fn new(
        bed: &'a mut Bed,
        contestant: Option<&'a Contestant>,
        window: Duration,
        known: &'a mut KnownRates,
    ) -> Self {
        let via = match contestant {
            Some(_) => bed.tunnelled(),
            None => bed.bare(),
        };
        Self {
            bed,
            via,
            contestant,
            window,
            known,
            outcome: Outcome::default(),
        }
    }

    /// Runs the tests that `rows` need, one after the other; one that fails leaves its rows empty,
    /// and the next begins with new daemons.
    pub(crate) fn run(mut self, rows: &[Row]) -> Outcome {
        let mut is_up = self.start().map_err(|error| self.note(&error));
        for test in Test::ALL.into_iter().filter(|test| test.is_needed(rows)) {
            if is_up.is_err() {
                break;
            }
            let done = self
                .perform(test)
                .and_then(|()| Ok(measure::check(&mut self.bed.tunnel)?));
            if let Err(error) = done.with_context(|| format!("{test:?}")) {
                self.note(&error);
                is_up = self.start().map_err(|error| self.note(&error));
            }
        }
        self.outcome
    }

    fn note(&mut self, error: &anyhow::Error) {
        self.outcome.failures.push(format!("{error:#}"));
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let Some(contestant) = self.contestant else {
            return Ok(());
        };
        self.bed.restart(&contestant.implementation())?;
        if let Some(packets) = contestant.queue_length {
            for end in [&self.bed.tunnel.left, &self.bed.tunnel.right] {
                end.namespace.link().set_queue_length(TUNNEL, packets)?;
            }
        }
        Ok(self.bed.wait_until_up()?)
    }

    fn perform(&mut self, test: Test) -> anyhow::Result<()> {
        match test {
            Test::CpuIdle => self.cpu_idle(),
            Test::PingIdle => {
                let ping = ping::start(&self.bed.tunnel.left.namespace, self.via, PING)?;
                let median = ping.median_ms()?;
                self.figure(Row::PingIdle, median);
                Ok(())
            }
            Test::TcpUp => self.tcp_with_ping(),
            Test::TcpDown => self.tcp(Row::TcpDown, Load::Down),
            Test::Tcp4 => self.tcp(Row::Tcp4, Load::FourStreams),
            Test::TcpBoth => self.tcp(Row::TcpBoth, Load::BothWays),
            Test::TcpCut => self.tcp_cut(),
            Test::Udp200k => self.offered(),
            Test::Udp1200 => self.highest_rate(Row::Udp1200, 1_200),
            Test::Udp64 => self.highest_rate(Row::Udp64, 64),
            Test::Memory => self.memory(),
        }
    }

    fn figure(&mut self, row: Row, value: f64) {
        self.outcome.figures.insert(row, value);
    }

    fn cpu_idle(&mut self) -> anyhow::Result<()> {
        if self.contestant.is_none() {
            return Ok(());
        }
        thread::sleep(REST);
        let daemon = &self.bed.tunnel.left.daemon;
        let before = measure::cpu_time(daemon)?;
        thread::sleep(IDLE);
        let used = measure::cpu_time(daemon)? - before;
        self.figure(
            Row::CpuIdle,
            100.0 * used.as_secs_f64() / IDLE.as_secs_f64(),
        );
        Ok(())
    }

    fn tcp_with_ping(&mut self) -> anyhow::Result<()> {
        let (from, via) = (self.bed.tunnel.left.namespace.clone(), self.via);
        let probing = self.window.saturating_sub(2 * PING_MARGIN);
        let ping = thread::spawn(move || {
            thread::sleep(PING_MARGIN);
            ping::start(&from, via, probing)?.median_ms()
        });
        let load = self.tcp(Row::TcpUp, Load::Up);
        // INVARIANT: that thread does not panic.
        let median = ping.join().expect("ping is waited for without a panic");
        load?;
        self.figure(Row::PingTcp, median?);
        Ok(())
    }

    fn tcp_cut(&mut self) -> anyhow::Result<()> {
        self.set_uso(false)?;
        let outcome = self.tcp(Row::TcpCut, Load::Up);
        self.set_uso(true)?;
        outcome
    }

    fn set_uso(&self, on: bool) -> anyhow::Result<()> {
        for end in [&self.bed.tunnel.left, &self.bed.tunnel.right] {
            end.namespace
                .run(|| set_feature(VETH, UDP_SEGMENTATION, on))??;
        }
        Ok(())
    }

    fn tcp(&mut self, row: Row, load: Load) -> anyhow::Result<()> {
        let before = self.cpu_seconds()?;
        let (from, at) = (
            &self.bed.tunnel.left.namespace,
            &self.bed.tunnel.right.namespace,
        );
        let received = iperf::run(from, at, self.via, load, self.window)?;
        // All bytes of the run are counted, so all of its CPU time is.
        let after = self.cpu_seconds()?;
        let cpu_seconds = after.zip(before).map(|(after, before)| after - before);
        self.figure(row, received.gbps);
        if let (Row::TcpUp, Some(seconds)) = (row, cpu_seconds) {
            self.figure(Row::Cpu, seconds / (received.bytes as f64 / 1e9));
        }
        self.outcome.details.tcp.push(TcpRun {
            row,
            bytes: received.bytes,
            gbps: received.gbps,
            cpu_seconds,
        });
        Ok(())
    }

    /// Of both daemons since their start; none beside the tunnel.
    fn cpu_seconds(&self) -> anyhow::Result<Option<f64>> {
        if self.contestant.is_none() {
            return Ok(None);
        }
        let tunnel = &self.bed.tunnel;
        let left = measure::cpu_time(&tunnel.left.daemon)?;
        let right = measure::cpu_time(&tunnel.right.daemon)?;
        Ok(Some((left + right).as_secs_f64()))
    }

    fn offered(&mut self) -> anyhow::Result<()> {
        let probe = udp::probe(&mut self.bed.ends, self.via, 1_200, OFFERED_PPS, udp::PROBE)?;
        self.figure(Row::Udp200k, probe.arrived_kpps);
        if !probe.held_rate {
            self.outcome.generator_limited.push(Row::Udp200k);
        }
        self.outcome.details.udp.push(probe);
        Ok(())
    }

    fn highest_rate(&mut self, row: Row, payload: usize) -> anyhow::Result<()> {
        let known = self.known.get(&payload).copied();
        let (found, probes) = udp::highest_rate(&mut self.bed.ends, self.via, payload, known)?;
        self.outcome.details.udp.extend(probes);
        // More than 1 % loss at any rate is a rate of none.
        self.figure(row, found.map_or(0.0, |found| found.rate_pps / 1e3));
        if let Some(found) = found {
            self.known.insert(payload, found.rate_pps);
            if found.generator_limited {
                self.outcome.generator_limited.push(row);
            }
        }
        Ok(())
    }

    fn memory(&mut self) -> anyhow::Result<()> {
        if self.contestant.is_none() {
            return Ok(());
        }
        let tunnel = &self.bed.tunnel;
        let left = measure::peak_memory(&tunnel.left.daemon)?;
        let right = measure::peak_memory(&tunnel.right.daemon)?;
        self.figure(Row::Memory, left.max(right) as f64 / 1e6);
        Ok(())
    }
}
