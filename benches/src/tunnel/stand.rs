//! A contender between two namespaces, and the tests that run on it.

mod requests;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoy_lab::measure::{self, Bed, Ends, process};
use convoy_lab::traffic::LatencyReport;
use convoy_lab::wireguard::{Implementation, TunnelOptions, Underlay};
use convoy_lab::{Detour, Namespace, Pid};
use convoy_rows::row::{Row, Run};

use super::contender::{Contender, Kind, Set};
use super::gateway::{self, Gateway};
use super::openvpn::{self, OpenVpn};
use super::paths::Paths;
use super::rootless::{self, Rootless};
use super::scenes::{Figure, Scene, Test, UP};

/// The interface at both ends, as the lab names it.
const TUNNEL: &str = "wg0";
const PING: Duration = Duration::from_secs(1);
/// Duration of measuring the CPU time without traffic, and of the rest before.
const IDLE: Duration = Duration::from_millis(750);
const REST: Duration = Duration::from_millis(250);
/// Time for which a load runs before and after the probes beside it.
const MARGIN: Duration = Duration::from_millis(300);

/// Two namespaces with a veth, and a contender's tunnel between them.
pub(crate) struct Stand {
    pub(crate) bed: Bed,
    contender: Contender,
    openvpn: Option<OpenVpn>,
    rootless: Option<Rootless>,
    /// Present for [`Set::Gateways`].
    gateway: Option<Gateway>,
    /// Present for [`Set::Paths`].
    paths: Option<Paths>,
    /// Present while a path with delay is measured.
    detour: Option<Detour>,
    /// Convoy in TUN mode, beside programs without root and user-mode networks.
    convoy: Implementation,
    set: Set,
    /// Length of a TCP run.
    window: Duration,
    /// Rates found by earlier searches, by contender and payload: the next search starts there.
    known_pps: BTreeMap<(String, usize), f64>,
    /// The peak memory of a daemon before the last reset, in bytes.
    earlier_peak: u64,
}

/// The result of a test.
#[derive(Debug, Default)]
struct Found {
    figures: Vec<(Figure, f64)>,
    is_limited: bool,
    /// Why a figure is absent.
    failure: Option<String>,
    /// Rates asked for and arrived, in kpps.
    curve: Vec<(f64, f64)>,
}

impl Stand {
    /// Builds the namespaces, with the WireGuard program `contender` at both ends.
    ///
    /// # Errors
    /// If a namespace cannot be created or the daemons do not start.
    pub(crate) fn new(contender: &Contender, window: Duration) -> Result<Self> {
        let convoy = contender.implementation();
        let mut bed = Bed::with(&convoy, crate::agent::agent, &TunnelOptions::default())?;
        // Tailscale's fork does not learn a peer's endpoint from received packets.
        let left = bed.tunnel.left.outer(Underlay::V4);
        if let Some(peer) = bed.tunnel.right.config.peers.first_mut() {
            peer.endpoint = Some(left);
        }
        Ok(Self {
            bed,
            contender: contender.clone(),
            openvpn: None,
            rootless: None,
            gateway: None,
            paths: None,
            detour: None,
            convoy,
            set: Set::Programs,
            window,
            known_pps: BTreeMap::new(),
            earlier_peak: 0,
        })
    }

    /// The same for the contenders of `set`.
    pub(crate) fn of(mut self, set: Set) -> Result<Self> {
        self.set = set;
        match set {
            Set::Gateways => self.gateway = Some(Gateway::new(&mut self.bed)?),
            Set::Paths => self.paths = Some(Paths::new(&mut self.bed, &self.convoy)?),
            Set::Programs | Set::Rootless => {}
        }
        Ok(self)
    }

    /// Starts new daemons of `contender` and waits until packets pass.
    pub(crate) fn start(&mut self, contender: &Contender) -> Result<()> {
        self.contender = contender.clone();
        self.restart()
    }

    /// Replaces the daemons and waits until packets pass.
    pub(crate) fn restart(&mut self) -> Result<()> {
        // The old daemons end before the new ones start. Beside an OpenVPN the last WireGuard daemons stay, but carry
        // nothing.
        self.openvpn = None;
        self.rootless = None;
        self.earlier_peak = 0;
        let (via, convoy, bed) = (self.via(), &self.convoy, &mut self.bed);
        if let Some(paths) = &mut self.paths {
            return paths.start(bed, &self.contender);
        }
        let mut places = None;
        match (self.contender.kind, &mut self.gateway) {
            (Kind::Nat, Some(gateway)) => places = Some(gateway.renew_peer(bed, convoy)?),
            (_, Some(gateway)) => return gateway.start(bed, &self.contender, convoy),
            (_, None) => {}
        }
        match self.contender.kind {
            Kind::Bare => {}
            Kind::WireGuard => {
                bed.restart(&self.contender.implementation())?;
                if let Some(packets) = self.contender.queue_length {
                    for namespace in self.namespaces() {
                        namespace.link().set_queue_length(TUNNEL, packets)?;
                    }
                }
                self.bed.wait_until_up()?;
            }
            Kind::OpenVpn => self.openvpn = Some(OpenVpn::start(bed, &self.contender)?),
            Kind::Exec | Kind::Ports | Kind::Socks | Kind::Nat | Kind::Network | Kind::Client => {
                if places.is_none() {
                    bed.tunnel.right.replace_daemon(convoy)?;
                }
                let places = places.unwrap_or_else(|| self.namespaces().map(Namespace::clone));
                let rootless = Rootless::start(&mut self.bed, &self.contender, &places, via)?;
                self.rootless = Some(rootless);
            }
        }
        Ok(())
    }

    /// Why `contender` cannot take part here; `None` if it can.
    pub(crate) fn absence(&mut self, contender: &Contender) -> Option<String> {
        if let Some(why) = rootless::absence(contender) {
            return Some(why);
        }
        if let Some(paths) = &mut self.paths {
            let refused = paths.prepare(&self.bed, contender).err()?;
            return Some(format!("{refused:#}"));
        }
        match contender.kind {
            Kind::WireGuard => None,
            _ if self.gateway.is_some() => Some(format!("{:#}", self.start(contender).err()?)),
            Kind::OpenVpn if contender.arguments.is_empty() => {
                let refusals = openvpn::load_kernel_part();
                match self.start(contender) {
                    Ok(()) if self.openvpn.as_ref().is_some_and(OpenVpn::is_in_kernel) => None,
                    Ok(()) => Some(format!("no kernel module: {refusals}")),
                    Err(error) => Some(format!("{error:#}")),
                }
            }
            _ => None,
        }
    }

    /// Fails if a daemon has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(paths) = &self.paths {
            return paths.check();
        }
        match (&mut self.openvpn, &mut self.rootless) {
            (Some(openvpn), _) => openvpn.check(),
            (None, Some(rootless)) => rootless.processes.check(),
            (None, None) => {
                self.gateway.as_mut().map_or(Ok(()), Gateway::check)?;
                Ok(measure::check(&mut self.bed.tunnel)?)
            }
        }
    }

    /// Runs `test` for those of `scenes` that it fills, and adds their rows. If it fails, the reason becomes a note, and
    /// the next test starts with new daemons.
    ///
    /// # Errors
    /// If the daemons do not start again.
    pub(crate) fn measure(
        &mut self,
        test: Test,
        scenes: &[&Scene],
        round: u32,
        run: &mut Run,
    ) -> Result<()> {
        let own = scenes.iter().filter(|scene| scene.test == test);
        let own: Vec<_> = own.filter(|scene| scene.is_for(&self.contender)).collect();
        let Some(first) = own.first() else {
            return Ok(());
        };
        let wanted: Vec<_> = own.iter().map(|scene| scene.of_test).collect();
        let name = self.contender.name.clone();
        let note = |why: String| format!("Failed: {name} in round {}: {why}", round + 1);
        let found = self.perform(test, &wanted);
        let found = found.and_then(|found| self.check().map(|()| found));
        let found = match found.with_context(|| first.name) {
            Ok(found) => found,
            Err(error) => {
                run.origin.notes.push(note(format!("{error:#}")));
                return self.restart();
            }
        };
        let row = |scene: &Scene, value| Row::new(scene.name, &name, scene.figure, round, value);
        for scene in &own {
            let figures = found.figures.iter();
            for (_, value) in figures.filter(|(figure, _)| *figure == scene.of_test) {
                run.push(row(scene, *value).limited(found.is_limited));
            }
        }
        for (asked, arrived) in found.curve {
            run.push(row(first, arrived).at(asked));
        }
        run.origin.notes.extend(found.failure.map(note));
        Ok(())
    }

    /// Runs `test` and returns the `wanted` figures.
    fn perform(&mut self, test: Test, wanted: &[Figure]) -> Result<Found> {
        match test {
            Test::CpuIdle => self.cpu_idle(),
            Test::PingIdle => {
                let via = self.via();
                let latency = self.ends().ping(via, PING)?;
                Ok(Found::of(round_trips(&latency)?))
            }
            Test::Tcp(tcp) => self.tcp(tcp, wanted),
            Test::Requests { beside_tcp } => self.requests(beside_tcp),
            Test::Connections(at_once) => self.connections(at_once),
            Test::UdpOffered(payload, kpps) => self.udp_offered(payload, kpps.into()),
            Test::UdpRate(payload) => self.udp_rate(payload),
            Test::UdpCurve(payload) => self.udp_curve(payload),
            Test::Flows(flows) => self.beside_flows(flows, wanted),
            Test::Memory => self.memory(),
        }
    }

    fn beside_flows(&mut self, flows: u32, wanted: &[Figure]) -> Result<Found> {
        let via = self.via();
        let open = self.ends().hold(via, flows)?;
        let mut found = self.tcp(UP, wanted);
        if found.is_err() && open < flows {
            // Make room for the busy stream.
            self.ends().hold(via, open * 9 / 10)?;
            found = self.tcp(UP, wanted);
        }
        self.ends().hold(via, 0)?;
        let mut found = found?;
        found.figures.push((Figure::Open, f64::from(open)));
        Ok(found)
    }

    fn cpu_idle(&mut self) -> Result<Found> {
        let Some(&[left, ..]) = self.daemons()?.as_deref() else {
            return Ok(Found::default());
        };
        thread::sleep(REST);
        let before = process::cpu_time(left)?;
        thread::sleep(IDLE);
        let used = process::cpu_time(left)? - before;
        let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
        Ok(Found::of([(Figure::Main, percent)]))
    }

    fn memory(&mut self) -> Result<Found> {
        let Some(daemons) = self.daemons()? else {
            return Ok(Found::default());
        };
        let most = self.peak(&daemons)?.max(self.earlier_peak);
        Ok(Found::of([(Figure::Main, most as f64 / 1e6)]))
    }

    fn forget_peak(&mut self, daemons: &[Pid]) -> Result<()> {
        self.earlier_peak = self.earlier_peak.max(self.peak(daemons)?);
        let mut daemons = daemons.iter();
        Ok(daemons.try_for_each(|daemon| process::forget_peak_memory(*daemon))?)
    }

    /// Peak memory in bytes: of the larger daemon, or of all processes of the near end.
    fn peak(&self, daemons: &[Pid]) -> Result<u64> {
        let each = daemons.iter().map(|daemon| process::peak_memory(*daemon));
        let each: Vec<_> = each.collect::<Result<_, _>>()?;
        Ok(match self.set {
            Set::Programs => each.into_iter().max().unwrap_or(0),
            Set::Rootless | Set::Gateways | Set::Paths => each.into_iter().sum(),
        })
    }

    /// The traffic agents.
    fn ends(&mut self) -> &mut Ends {
        match &mut self.rootless {
            Some(rootless) => &mut rootless.ends,
            None => &mut self.bed.ends,
        }
    }

    /// The far end's address.
    fn via(&self) -> IpAddr {
        match self.contender.kind {
            _ if self.gateway.is_some() => gateway::SERVER.into(),
            Kind::Bare => self.bed.bare(),
            Kind::WireGuard | Kind::Client => self.bed.tunnelled(),
            Kind::OpenVpn => OpenVpn::FAR.into(),
            kind => Rootless::via(kind),
        }
    }

    fn namespaces(&self) -> [&Namespace; 2] {
        let tunnel = &self.bed.tunnel;
        [&tunnel.left.namespace, &tunnel.right.namespace]
    }

    /// The processes that carry the packets, of all sets but the first only those of the near end; `None` if the kernel
    /// carries them.
    fn daemons(&self) -> Result<Option<Vec<Pid>>> {
        if let Some(paths) = &self.paths {
            return Ok(Some(paths.pids()?));
        }
        let tunnel = &self.bed.tunnel;
        let [left, right] = [&tunnel.left, &tunnel.right].map(|end| end.daemon.pid());
        Ok(match (self.contender.kind, &self.openvpn, &self.rootless) {
            (Kind::WireGuard | Kind::Network, ..) if self.set != Set::Programs => {
                let network = self.gateway.as_ref().and_then(Gateway::pid);
                Some(network.into_iter().chain([left]).collect())
            }
            (Kind::WireGuard, ..) => Some(vec![left, right]),
            (_, Some(openvpn), _) if !openvpn.is_in_kernel() => Some(openvpn.pids().into()),
            (_, _, Some(rootless)) => Some(rootless.processes.pids()?),
            _ => None,
        })
    }
}

impl Found {
    /// The figures that have a value.
    fn of<V: Into<Option<f64>>>(figures: impl IntoIterator<Item = (Figure, V)>) -> Self {
        let figures = figures.into_iter();
        let figures = figures.filter_map(|(figure, value)| Some((figure, value.into()?)));
        Self {
            figures: figures.collect(),
            ..Self::default()
        }
    }
}

fn round_trips(latency: &LatencyReport) -> Result<[(Figure, f64); 2]> {
    let both = latency.median_ms.zip(latency.p99_ms);
    let (median, p99) = both.context("no probe returned")?;
    Ok([(Figure::P50, median), (Figure::P99, p99)])
}
