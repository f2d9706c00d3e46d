//! A contender between two namespaces, and the tests that run on it.

mod start;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use convoy_lab::measure::{self, Bed, Direction, Ends, process};
use convoy_lab::traffic::{Exchange, LatencyReport};
use convoy_lab::wireguard::{Implementation, TunnelOptions, Underlay};
use convoy_lab::{Namespace, Pid};
use convoy_rows::row::{Row, Run};
use convoy_turn_server::RelayIdentity;
use tempfile::TempDir;

use super::contender::{Contender, Kind, Set};
use super::gateway::{self, Gateway};
use super::paths::{self, Paths};
use super::scenes::{Figure, Scene, Test, UP};
use crate::programs::{Started, write_private};
use tcp::load;

/// The right end's address in an OpenVPN.
const OPENVPN: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
/// Duration of pings, and of requests of one kind.
const REQUESTS: Duration = Duration::from_secs(1);
/// Duration of measuring the CPU time without traffic, and of the rest before.
const IDLE: Duration = Duration::from_millis(750);
const REST: Duration = Duration::from_millis(250);
/// Time for which a load runs before and after the probes beside it.
const MARGIN: Duration = Duration::from_millis(300);

/// Two namespaces with a veth, and a contender's tunnel between them.
pub(crate) struct Stand {
    pub(crate) bed: Bed,
    contender: Contender,
    /// Programs besides the daemons of the bed or instead of them, that of the near end first.
    programs: Vec<Started>,
    /// Agents other than those of the bed.
    ends: Option<Ends>,
    /// Present for [`Set::Gateways`].
    gateway: Option<Gateway>,
    /// Present for [`Set::Paths`].
    paths: Option<Paths>,
    /// Convoy in TUN mode, beside programs without root and user-mode networks.
    convoy: Implementation,
    /// Holds the certificate and the password of programs that need them.
    directory: TempDir,
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
    /// Builds the namespaces for a set's contenders, with the WireGuard program `contender` at both ends.
    ///
    /// # Errors
    /// If a namespace cannot be created or the daemons do not start.
    pub(crate) fn new(contender: &Contender, set: Set, window: Duration) -> Result<Self> {
        let convoy = contender.implementation();
        let mut bed = Bed::with(&convoy, crate::agent::agent, &TunnelOptions::default())?;
        // Tailscale's fork does not learn a peer's endpoint from received packets.
        let left = bed.tunnel.left.outer(Underlay::V4);
        if let Some(peer) = bed.tunnel.right.config.peers.first_mut() {
            peer.endpoint = Some(left);
        }
        let gateway = (set == Set::Gateways).then(|| Gateway::new(&mut bed));
        let paths = (set == Set::Paths).then(|| Paths::new(&bed, &convoy));
        let directory = tempfile::tempdir()?;
        let identity = RelayIdentity::new(paths::SERVER).map_err(Error::msg)?;
        for (name, text) in [
            ("authority", &*identity.authority),
            ("certificate", &identity.certificate),
            ("key", &identity.key),
            ("password", paths::PASSWORD),
        ] {
            write_private(&directory.path().join(name), text)?;
        }
        Ok(Self {
            gateway: gateway.transpose()?,
            paths: paths.transpose()?,
            bed,
            contender: contender.clone(),
            programs: Vec::new(),
            ends: None,
            convoy,
            directory,
            set,
            window,
            known_pps: BTreeMap::new(),
            earlier_peak: 0,
        })
    }

    /// Fails if a daemon or another program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.programs.iter_mut().try_for_each(Started::check)?;
        match self.contender.kind {
            Kind::WireGuard | Kind::Network => Ok(measure::check(&mut self.bed.tunnel)?),
            _ => Ok(()),
        }
    }

    /// Runs the test of `scenes`, which share it, and adds the contender's rows. If it fails, the reason becomes a
    /// note, and the next test starts with new daemons.
    ///
    /// # Errors
    /// If the daemons do not start again.
    pub(crate) fn measure(&mut self, scenes: &[&Scene], round: u32, run: &mut Run) -> Result<()> {
        let own = scenes.iter().copied();
        let own: Vec<_> = own.filter(|scene| scene.is_for(&self.contender)).collect();
        let Some(first) = own.first() else {
            return Ok(());
        };
        let name = self.contender.name.clone();
        let note = |why: String| format!("Failed: {name} in round {}: {why}", round + 1);
        let found = self.perform(first.test, &own);
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
            for (_, value) in figures.filter(|(figure, _)| scene.shows(figure)) {
                run.push(row(scene, *value).limited(found.is_limited));
            }
        }
        for (asked, arrived) in found.curve {
            run.push(row(first, arrived).at(asked));
        }
        run.origin.notes.extend(found.failure.map(note));
        Ok(())
    }

    /// Runs `test` and returns at least the figures that `scenes` show.
    fn perform(&mut self, test: Test, scenes: &[&Scene]) -> Result<Found> {
        match test {
            Test::CpuIdle => self.cpu_idle(),
            Test::PingIdle => {
                let via = self.via();
                let latency = self.ends().ping(via, REQUESTS)?;
                Ok(Found::of(round_trips(&latency)?))
            }
            Test::Tcp(tcp) => self.tcp(tcp, scenes),
            Test::Requests(over) => self.requests(over),
            Test::RequestsBesideTcp(over) => self.requests_beside_tcp(over),
            Test::UdpOffered(payload, kpps) => self.udp_offered(payload, kpps.into()),
            Test::UdpRate(payload) => self.udp_rate(payload),
            Test::UdpCurve(payload) => self.udp_curve(payload),
            Test::Flows(flows) => self.beside_flows(flows, scenes),
            Test::Memory => self.memory(),
        }
    }

    fn requests(&mut self, over: Exchange) -> Result<Found> {
        let via = self.via();
        let report = self.ends().round_trips(via, over, REQUESTS)?;
        ensure!(report.answered > 0, "no request was answered");
        let rate = report.answered as f64 / report.seconds;
        Ok(Found::of([
            ("1/s", Some(rate)),
            ("p50", report.p50_us),
            ("p99", report.p99_us),
            ("p99.9", report.p999_us),
        ]))
    }

    fn requests_beside_tcp(&mut self, over: Exchange) -> Result<Found> {
        let (via, load) = (self.via(), load(Direction::Up, 1, REQUESTS + 2 * MARGIN));
        // Before the load, which would delay it.
        self.ends().answer_round_trips()?;
        self.ends().begin_tcp(via, load, None)?;
        thread::sleep(MARGIN);
        let found = self.requests(over);
        self.ends().finish_tcp(load)?;
        found
    }

    fn beside_flows(&mut self, flows: u32, scenes: &[&Scene]) -> Result<Found> {
        let via = self.via();
        let open = self.ends().hold(via, flows)?;
        let mut found = self.tcp(UP, scenes);
        if found.is_err() && open < flows {
            // Make room for the busy stream.
            self.ends().hold(via, open * 9 / 10)?;
            found = self.tcp(UP, scenes);
        }
        self.ends().hold(via, 0)?;
        let mut found = found?;
        found.add([("flows", f64::from(open))]);
        Ok(found)
    }

    fn cpu_idle(&mut self) -> Result<Found> {
        let Some(left) = self.daemons()?.first().copied() else {
            return Ok(Found::default());
        };
        thread::sleep(REST);
        let before = process::cpu_time(left)?;
        thread::sleep(IDLE);
        let used = process::cpu_time(left)? - before;
        let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
        Ok(Found::of([("%", percent)]))
    }

    fn memory(&mut self) -> Result<Found> {
        let daemons = self.daemons()?;
        let most = self.peak(&daemons)?.max(self.earlier_peak) as f64 / 1e6;
        let most = (!daemons.is_empty()).then_some(most);
        Ok(Found::of([("MB", most)]))
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
            _ => each.into_iter().sum(),
        })
    }

    /// The traffic agents.
    fn ends(&mut self) -> &mut Ends {
        self.ends.as_mut().unwrap_or(&mut self.bed.ends)
    }

    /// The address at which the near end reaches the far one.
    fn via(&self) -> IpAddr {
        match self.contender.kind {
            _ if self.gateway.is_some() => gateway::SERVER.into(),
            Kind::Bare | Kind::Forward => self.bed.bare(),
            Kind::OpenVpn => OPENVPN.into(),
            Kind::Ports => Ipv4Addr::LOCALHOST.into(),
            _ => self.bed.tunnelled(),
        }
    }

    fn namespaces(&self) -> [&Namespace; 2] {
        let tunnel = &self.bed.tunnel;
        [&tunnel.left.namespace, &tunnel.right.namespace]
    }

    /// The processes that carry the packets, of all sets but the first only those of one end; none if the kernel carries
    /// them.
    fn daemons(&self) -> Result<Vec<Pid>> {
        let ends = if self.set == Set::Programs { 2 } else { 1 };
        let mut pids = Vec::new();
        if !self.is_in_kernel() {
            for program in self.programs.iter().take(ends) {
                pids.extend(program.pids()?);
            }
        }
        if let Kind::WireGuard | Kind::Network = self.contender.kind {
            let tunnel = [&self.bed.tunnel.left, &self.bed.tunnel.right];
            pids.extend(tunnel.iter().take(ends).map(|end| end.daemon.pid()));
        }
        Ok(pids)
    }
}

impl Found {
    fn of<V: Into<Option<f64>>>(figures: impl IntoIterator<Item = (Figure, V)>) -> Self {
        let mut found = Self::default();
        found.add(figures);
        found
    }

    /// Adds the figures that have a value.
    fn add<V: Into<Option<f64>>>(&mut self, figures: impl IntoIterator<Item = (Figure, V)>) {
        let known = |(figure, value): (Figure, V)| Some((figure, value.into()?));
        self.figures.extend(figures.into_iter().filter_map(known));
    }
}

fn round_trips(latency: &LatencyReport) -> Result<[(Figure, f64); 2]> {
    let both = latency.median_ms.zip(latency.p99_ms);
    let (median, p99) = both.context("no probe returned")?;
    Ok([("p50", median), ("p99", p99)])
}
