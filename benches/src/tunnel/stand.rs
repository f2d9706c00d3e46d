//! A contender between two namespaces, and the tests that run on it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::measure::{self, Bed, process};
use convoy_lab::traffic::{Exchange, LatencyReport, RoundTripReport};
use convoy_lab::wireguard::{TunnelOptions, Underlay};
use convoy_lab::{Namespace, Pid, UDP_SEGMENTATION, loss};
use serde::Serialize;
use serde_json::{Value, json};

use super::iperf::{self, Load, Received, Way};
use super::openvpn::{self, Certificates, OpenVpn};
use super::rows::{Figure, Tcp, Test, Veth};
use super::{Contender, Kind, udp};

/// The interfaces at both ends, as the lab names them.
const TUNNEL: &str = "wg0";
const VETH: &str = "veth0";
/// How long to measure the CPU time without traffic, and how long to rest before.
const IDLE: Duration = Duration::from_millis(750);
const REST: Duration = Duration::from_millis(250);
const PING: Duration = Duration::from_secs(1);
const REQUESTS: Duration = Duration::from_secs(1);
/// How long a load runs before and after the probes beside it.
const MARGIN: Duration = Duration::from_millis(300);
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

/// Two namespaces with a veth, and a contender's tunnel between them.
pub(crate) struct Stand {
    bed: Bed,
    contender: Contender,
    /// Created for the first OpenVPN.
    certificates: Option<Certificates>,
    openvpn: Option<OpenVpn>,
    /// Length of a TCP run.
    window: Duration,
    /// Rates found by earlier searches, by contender and payload: the next search starts there.
    known_pps: BTreeMap<(String, usize), f64>,
    /// The peak memory of a daemon before the last reset, in bytes.
    earlier_peak: u64,
}

/// The result of a test.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) figures: Vec<(Figure, f64)>,
    pub(crate) generator_limited: bool,
    pub(crate) failures: Vec<String>,
    pub(crate) raw: Value,
}

impl Stand {
    /// Builds the namespaces, with the WireGuard program `contender` at both ends.
    ///
    /// # Errors
    /// If a namespace cannot be created or the daemons do not start.
    pub(crate) fn new(
        contender: &Contender,
        window: Duration,
        options: &TunnelOptions,
    ) -> anyhow::Result<Self> {
        let mut bed = Bed::with(&contender.implementation(), crate::agent, options)?;
        // Tailscale's fork does not learn a peer's endpoint from received packets.
        let left = bed.tunnel.left.outer(Underlay::V4);
        if let Some(peer) = bed.tunnel.right.config.peers.first_mut() {
            peer.endpoint = Some(left);
        }
        Ok(Self {
            bed,
            contender: contender.clone(),
            certificates: None,
            openvpn: None,
            window,
            known_pps: BTreeMap::new(),
            earlier_peak: 0,
        })
    }

    pub(crate) fn contender(&self) -> &Contender {
        &self.contender
    }

    pub(crate) fn bed(&mut self) -> &mut Bed {
        &mut self.bed
    }

    /// Starts new daemons of `contender` and waits until packets pass.
    pub(crate) fn start(&mut self, contender: &Contender) -> anyhow::Result<()> {
        self.contender = contender.clone();
        self.restart()
    }

    /// Replaces the daemons and waits until packets pass.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        // The old daemons end before the new ones start. Beside an OpenVPN the last WireGuard daemons stay, but carry
        // nothing.
        self.openvpn = None;
        self.earlier_peak = 0;
        match self.contender.kind {
            Kind::Bare => Ok(()),
            Kind::WireGuard => {
                self.bed.restart(&self.contender.implementation())?;
                if let Some(packets) = self.contender.queue_length {
                    for namespace in self.namespaces() {
                        namespace.link().set_queue_length(TUNNEL, packets)?;
                    }
                }
                Ok(self.bed.wait_until_up()?)
            }
            Kind::OpenVpn => {
                let certificates = match self.certificates.take() {
                    Some(certificates) => certificates,
                    None => Certificates::generate()?,
                };
                let certificates = self.certificates.insert(certificates);
                let mut openvpn = OpenVpn::start(&self.bed, &self.contender, certificates)?;
                openvpn.wait_until_up(&mut self.bed.ends)?;
                self.openvpn = Some(openvpn);
                Ok(())
            }
        }
    }

    /// Why the OpenVPN `contender` cannot take part here; `None` if it can.
    pub(crate) fn absence(&mut self, contender: &Contender) -> Option<String> {
        if !contender.program.is_file() {
            return Some("not installed (fix: apt-get install openvpn)".to_owned());
        }
        let wants_kernel = contender.arguments.is_empty();
        let refusals = wants_kernel.then(openvpn::load_kernel_part)?;
        match self.start(contender) {
            Ok(()) if self.daemons().is_none() => None,
            Ok(()) => Some(format!("no kernel module: {refusals}")),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// Fails if a daemon has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match &mut self.openvpn {
            Some(openvpn) => openvpn.check(),
            None => Ok(measure::check(&mut self.bed.tunnel)?),
        }
    }

    /// Runs `test` and returns the `wanted` figures.
    pub(crate) fn perform(&mut self, test: Test, wanted: &[Figure]) -> anyhow::Result<Found> {
        match test {
            Test::CpuIdle => self.cpu_idle(),
            Test::PingIdle => {
                let latency = self.bed.ends.ping(self.via(), PING)?;
                Ok(Found::raw(latency).with(round_trips(&latency)?))
            }
            Test::Tcp(tcp) => self.tcp(tcp, wanted),
            Test::Requests { beside_tcp } => self.requests(beside_tcp),
            Test::Connections => {
                let report = self.exchange(Exchange::TcpConnect)?;
                let rate = report.answered as f64 / report.seconds;
                Ok(Found::raw(report).with([(Figure::Main, rate)]))
            }
            Test::UdpOffered(payload, kpps) => {
                let via = self.via();
                let ends = &mut self.bed.ends;
                let probe = udp::probe(ends, via, payload, kpps.into(), udp::PROBE)?;
                let mut found = Found::raw(probe).with([(Figure::Main, probe.arrived_kpps)]);
                found.generator_limited = !probe.held_rate;
                Ok(found)
            }
            Test::UdpRate(payload) => self.udp_rate(payload),
            Test::UdpCurve(payload) => self.udp_curve(payload),
            Test::Memory => self.memory(),
        }
    }

    fn cpu_idle(&mut self) -> anyhow::Result<Found> {
        let Some([left, _]) = self.daemons() else {
            return Ok(Found::default());
        };
        thread::sleep(REST);
        let before = process::cpu_time(left)?;
        thread::sleep(IDLE);
        let used = process::cpu_time(left)? - before;
        let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
        Ok(Found::default().with([(Figure::Main, percent)]))
    }

    fn tcp(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        self.set_veth(tcp.veth, true)?;
        let found = self.tcp_as_it_is(tcp, wanted);
        self.set_veth(tcp.veth, false)?;
        found
    }

    fn tcp_as_it_is(&mut self, tcp: Tcp, wanted: &[Figure]) -> anyhow::Result<Found> {
        let daemons = self.daemons();
        let of_memory = daemons.filter(|_| wanted.contains(&Figure::Memory));
        let of_calls = daemons.filter(|_| wanted.contains(&Figure::Syscalls));
        if of_memory.is_some() {
            self.forget_peak()?;
        }
        let before = daemons.map(cpu_seconds).transpose()?;
        let (received, latency) = self.send(tcp, self.window)?;
        // All bytes of the run are counted, so all of its CPU time is, too.
        let after = daemons.map(cpu_seconds).transpose()?;
        let cpu = after.zip(before).map(|(after, before)| after - before);
        let gigabytes = received.bytes as f64 / 1e9;
        let memory = of_memory.map(peak).transpose()?;
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
        let running = self.load(tcp.load, window)?;
        if !tcp.ping {
            return Ok((running.finish()?, None));
        }
        thread::sleep(MARGIN);
        let latency = self
            .bed
            .ends
            .ping(self.via(), window.saturating_sub(2 * MARGIN));
        let received = running.finish()?;
        Ok((received, Some(latency?)))
    }

    /// Starts one TCP stream for `window`.
    pub(crate) fn one_stream(&self, way: Way, window: Duration) -> anyhow::Result<iperf::Running> {
        self.load(Load { way, ..ONE_STREAM }, window)
    }

    fn load(&self, load: Load, window: Duration) -> anyhow::Result<iperf::Running> {
        let [left, right] = self.namespaces();
        iperf::start(left, right, self.via(), load, window, None)
    }

    /// System calls, and the bytes received in the same run.
    fn count_calls(&self, load: Load, daemons: [Pid; 2]) -> anyhow::Result<(u64, u64)> {
        let [left, right] = self.namespaces();
        let running = iperf::start(left, right, self.via(), load, COUNTED, Some(daemons))?;
        let received = running.finish()?;
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

    fn requests(&mut self, beside_tcp: bool) -> anyhow::Result<Found> {
        use Figure::{P50, P99, P999, UdpP50, UdpP99, UdpP999};
        // Before the load, which would delay it.
        self.bed.ends.answer_round_trips()?;
        let mut load = None;
        if beside_tcp {
            load = Some(self.one_stream(Way::Up, REQUESTS * 2 + 2 * MARGIN)?);
            thread::sleep(MARGIN);
        }
        let reports = [Exchange::Tcp, Exchange::Udp].map(|exchange| self.exchange(exchange));
        if let Some(load) = load {
            load.finish()?;
        }
        let [tcp, udp] = reports;
        let (tcp, udp) = (tcp?, udp?);
        let figures = [
            (P50, tcp.p50_us),
            (P99, tcp.p99_us),
            (P999, tcp.p999_us),
            (UdpP50, udp.p50_us),
            (UdpP99, udp.p99_us),
            (UdpP999, udp.p999_us),
        ];
        let figures = figures.into_iter();
        let figures = figures.filter_map(|(figure, us)| Some((figure, us?)));
        Ok(Found::raw([tcp, udp]).with(figures))
    }

    fn exchange(&mut self, exchange: Exchange) -> anyhow::Result<RoundTripReport> {
        let via = self.via();
        self.bed.ends.answer_round_trips()?;
        let report = self.bed.ends.round_trips(via, exchange, REQUESTS)?;
        ensure!(report.answered > 0, "no request was answered");
        Ok(report)
    }

    fn udp_rate(&mut self, payload: usize) -> anyhow::Result<Found> {
        let via = self.via();
        let key = (self.contender.name.clone(), payload);
        let known = self.known_pps.get(&key).copied();
        let (found, probes) = udp::highest_rate(&mut self.bed.ends, via, payload, known)?;
        if let Some(found) = found {
            self.known_pps.insert(key, found.rate_pps);
        }
        // More than 1 % loss at every rate counts as a rate of zero.
        let kpps = found.map_or(0.0, |found| found.rate_pps / 1e3);
        let mut outcome = Found::raw(probes).with([(Figure::Main, kpps)]);
        outcome.generator_limited = found.is_some_and(|found| found.generator_limited);
        Ok(outcome)
    }

    fn udp_curve(&mut self, payload: usize) -> anyhow::Result<Found> {
        let via = self.via();
        let points = udp::curve(&mut self.bed.ends, via, payload)?;
        let most = points
            .iter()
            .max_by(|a, b| a.arrived_kpps.total_cmp(&b.arrived_kpps));
        let most = most.context("nothing was sent")?;
        let mut found = Found::raw(&points).with([(Figure::Main, most.arrived_kpps)]);
        found.generator_limited = !most.held_rate;
        Ok(found)
    }

    fn memory(&mut self) -> anyhow::Result<Found> {
        let Some(daemons) = self.daemons() else {
            return Ok(Found::default());
        };
        let most = peak(daemons)?.max(self.earlier_peak);
        Ok(Found::default().with([(Figure::Main, most as f64 / 1e6)]))
    }

    fn forget_peak(&mut self) -> anyhow::Result<()> {
        if let Some(daemons) = self.daemons() {
            self.earlier_peak = self.earlier_peak.max(peak(daemons)?);
            for daemon in daemons {
                process::forget_peak_memory(daemon)?;
            }
        }
        Ok(())
    }

    /// The far end's address.
    fn via(&self) -> IpAddr {
        match self.contender.kind {
            Kind::Bare => self.bed.bare(),
            Kind::WireGuard => self.bed.tunnelled(),
            Kind::OpenVpn => OpenVpn::FAR,
        }
    }

    fn namespaces(&self) -> [&Namespace; 2] {
        let tunnel = &self.bed.tunnel;
        [&tunnel.left.namespace, &tunnel.right.namespace]
    }

    /// The processes that carry the packets; `None` if the kernel does.
    fn daemons(&self) -> Option<[Pid; 2]> {
        let tunnel = &self.bed.tunnel;
        match self.contender.kind {
            Kind::Bare => None,
            Kind::WireGuard => Some([tunnel.left.daemon.pid(), tunnel.right.daemon.pid()]),
            Kind::OpenVpn => {
                let openvpn = self.openvpn.as_ref()?;
                (!openvpn.is_in_kernel()).then(|| openvpn.pids())
            }
        }
    }
}

impl Found {
    /// The raw measurements.
    fn raw(of: impl Serialize) -> Self {
        Self {
            // Numbers and strings always have a JSON form.
            raw: serde_json::to_value(of).unwrap_or_default(),
            ..Self::default()
        }
    }

    fn with(mut self, figures: impl IntoIterator<Item = (Figure, f64)>) -> Self {
        self.figures.extend(figures);
        self
    }
}

fn round_trips(latency: &LatencyReport) -> anyhow::Result<[(Figure, f64); 2]> {
    let both = latency.median_ms.zip(latency.p99_ms);
    let (median, p99) = both.context("no probe returned")?;
    Ok([(Figure::P50, median), (Figure::P99, p99)])
}

/// CPU time of both since their start.
fn cpu_seconds([left, right]: [Pid; 2]) -> anyhow::Result<f64> {
    let both = process::cpu_time(left)? + process::cpu_time(right)?;
    Ok(both.as_secs_f64())
}

/// Peak memory of the larger daemon, in bytes.
fn peak([left, right]: [Pid; 2]) -> anyhow::Result<u64> {
    Ok(process::peak_memory(left)?.max(process::peak_memory(right)?))
}
