//! Starting a contender on a stand, and the agents at the ends of its traffic.
//!
//! ```text
//!    left                                             right
//!    agents ── daemon, or a program at both ends ════ the same, agent
//!    agents ── loopback ── program ═════ tunnel ═════ wg0 Convoy, agent
//!    agents, inside ────── `convoy exec` ═ tunnel ═══ wg0 Convoy, agent
//! ```

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoy_lab::measure::{self, Between, Ends};
use convoy_lab::traffic::{Agent, Exchange};
use convoy_lab::{Pid, eventually};
use convoy_tun::TX_QUEUE_LEN;
use itertools::Itertools as _;

use super::Stand;
use crate::agent::{AGENT, TUNNEL, agent};
use crate::programs::{Started, find, output};
use crate::tunnel::contender::{Contender, Kind, PORTS, fill};
use crate::tunnel::paths::is_direct;

const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);
/// Time limit for the first packet: a handshake is tried again after five seconds, then by a relay.
const PATIENCE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_millis(1);
/// Time of connecting in which the sockets that a program had made ahead are used up.
const TURNOVER: Duration = Duration::from_millis(200);
const CONNECT: Exchange = Exchange::TcpConnect { at_once: 1 };
/// Logged by an OpenVPN whose data the kernel carries, by these modules: the second is out of tree.
const IN_KERNEL: &str = "DCO device";
const KERNEL_MODULES: [&str; 2] = ["ovpn", "ovpn-dco-v2"];

impl Stand {
    /// Returns why `contender` cannot take part here; `None` if it can.
    pub(crate) fn absence(&mut self, contender: &Contender) -> Option<String> {
        if let Some(why) = contender.absence() {
            return Some(why);
        }
        match contender.kind {
            Kind::OpenVpn => {
                // They may also be built in.
                let mut modprobe = Command::new(find("modprobe"));
                let _ = output(modprobe.arg("-a").args(KERNEL_MODULES));
            }
            Kind::Nat | Kind::Network | Kind::Client => {}
            _ => return None,
        }
        Some(format!("{:#}", self.start(contender).err()?))
    }

    /// Returns whether the kernel carries the data, and the processes only the keys.
    pub(super) fn is_in_kernel(&self) -> bool {
        let mut programs = self.programs.iter();
        programs.any(|program| program.log().contains(IN_KERNEL))
    }

    /// Starts new daemons of `contender` and waits until packets pass.
    pub(crate) fn start(&mut self, contender: &Contender) -> Result<()> {
        self.contender = contender.clone();
        self.restart()
    }

    /// Replaces the daemons and waits until packets pass.
    pub(crate) fn restart(&mut self) -> Result<()> {
        // The old programs and agents end before the new ones start.
        self.programs.clear();
        self.ends = None;
        self.earlier_peak = 0;
        let (kind, tunnel) = (self.contender.kind, &mut self.bed.tunnel);
        let daemon = match kind {
            Kind::WireGuard => self.contender.implementation(),
            _ => self.convoy.clone(),
        };
        tunnel.left.kill_daemon()?;
        match kind {
            Kind::Bare | Kind::OpenVpn | Kind::Client | Kind::Forward => {
                tunnel.right.kill_daemon()?;
            }
            _ => tunnel.right.replace_daemon(&daemon)?,
        }
        if let Some(gateway) = &self.gateway {
            let network = gateway.renew(&mut self.bed, &self.contender)?;
            self.programs.extend(network);
        }
        if let Some(paths) = &mut self.paths {
            paths.serve(&self.contender, self.directory.path())?;
        }
        match kind {
            Kind::Bare => {}
            Kind::WireGuard | Kind::Network => {
                // This end starts the handshake, so the right one must be running.
                self.bed.tunnel.left.replace_daemon(&daemon)?;
            }
            Kind::OpenVpn | Kind::Client => {
                let right = self.program(false)?;
                self.programs = vec![self.program(true)?, right];
            }
            Kind::Exec | Kind::Ports | Kind::Socks | Kind::Nat => {
                self.programs = vec![self.program(true)?];
            }
            Kind::Forward => self.programs = vec![self.program(false)?],
        }
        if self.contender.is_variant() {
            for namespace in self.namespaces() {
                namespace.link().set_queue_length(TUNNEL, TX_QUEUE_LEN)?;
            }
        }
        self.ends = Some(self.agents()?);
        let up = self.wait_until_up();
        if up.is_err() {
            // Too long for a note.
            eprintln!("{}", self.logs());
        }
        up.and_then(|()| self.prefer_cubic())
    }

    /// Starts the contender's program at one end.
    fn program(&self, is_left: bool) -> Result<Started> {
        let (left, right) = (&self.bed.tunnel.left, &self.bed.tunnel.right);
        let (own, other) = match is_left {
            true => (left, right),
            false => (right, left),
        };
        let directory = self.directory.path().to_string_lossy();
        let mut places = vec![
            ("{own-key}", own.keys.private_base64()),
            ("{own}", own.inner_v4().to_string()),
            ("{other-key}", other.keys.public_base64()),
            ("{other}", other.inner_v4().to_string()),
            ("{directory}", directory.into_owned()),
        ];
        let of_hub = self.paths.as_ref().map(|paths| paths.places(is_left));
        places.extend(of_hub.into_iter().flatten());
        let contender = &self.contender;
        let arguments = fill(contender.arguments, is_left, &places);
        let text = fill(contender.file, is_left, &places);
        let mut program = Started::copy(&own.namespace, &contender.program, &arguments, &text)?;
        // Documentation/networking/proc_net_tcp.rst: the local port, the remote address, and 0A for LISTEN.
        let (table, expected) = match contender.kind {
            Kind::Exec => ("comm", "sleep\n".to_owned()),
            Kind::Forward => ("net/tcp", format!(":{:04X} 00000000:0000 0A", PORTS[0])),
            _ => return Ok(program),
        };
        program.wait_until(|it| {
            let table = fs::read_to_string(format!("/proc/{}/{table}", it.pid()));
            table.is_ok_and(|table| table.contains(&expected))
        })?;
        Ok(program)
    }

    /// Starts agents at the ends of the contender's traffic.
    fn agents(&self) -> Result<Ends> {
        let [left, right] = self.namespaces();
        let (near, far) = match &self.gateway {
            Some(gateway) => (right, &gateway.server),
            None if self.contender.kind == Kind::Forward => (left, left),
            None => (left, right),
        };
        let mut between = Between::default();
        match self.contender.kind {
            Kind::Socks => between.proxy = Some(PROXY),
            Kind::Ports | Kind::Forward => between.ports = PORTS,
            _ => {}
        }
        let program = env::current_exe()?;
        let start = || {
            let mut inner = agent(near);
            if self.contender.kind == Kind::Exec {
                // An agent that the program executes itself could not take precedence, as all others do.
                let inside = self.programs[0].pid().to_string();
                inner = Command::new("nsenter");
                inner.args(["--net", "--target", &inside]);
                inner.arg(&program).arg(AGENT);
            }
            Agent::spawn(inner)
        };
        let far = Agent::spawn(agent(far))?;
        Ok(Ends::with(start()?, start()?, far, between)?)
    }

    /// Waits until connections pass to the far end, on the path that is to be measured.
    fn wait_until_up(&mut self) -> Result<()> {
        if self.contender.kind == Kind::Forward {
            // It forwards nothing but the load.
            return Ok(());
        }
        let via = self.via();
        let mut last = None;
        let passed = eventually(PATIENCE, || {
            match self.ends().round_trips(via, CONNECT, PROBE) {
                Ok(report) if report.answered > 0 && self.is_on_path() => return Some(Ok(())),
                asked => last = Some(asked),
            }
            self.check().err().map(Err)
        });
        passed.with_context(|| format!("no connection passed within {PATIENCE:?}: {last:?}"))??;
        if self.contender.name == "openvpn-dco" && !self.is_in_kernel() {
            bail!("there is no kernel module {}", KERNEL_MODULES.join(" or "));
        }
        Ok(())
    }

    /// Returns whether packets take the path that the contender is about.
    fn is_on_path(&self) -> bool {
        let is_any = !self.contender.file.contains("Direct =");
        is_any || is_direct(&self.contender, self.namespaces()[0]).unwrap_or(false)
    }

    /// The ends of the logs.
    fn logs(&self) -> String {
        match &self.programs[..] {
            [] => {
                let ends = [&self.bed.tunnel.left, &self.bed.tunnel.right];
                ends.map(measure::log_tail).join("\n")
            }
            programs => programs.iter().map(Started::last_lines).join("\n"),
        }
    }

    /// Prefers cubic in networks that the program makes: each inherits the host's congestion control, not that of the lab.
    fn prefer_cubic(&mut self) -> Result<()> {
        let network = |pid: Pid| Some(fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino());
        let of_lab = self.namespaces().map(|namespace| network(namespace.pid()));
        let pids = self.programs.first().map(Started::pids).transpose()?;
        let mut inside = pids.unwrap_or_default();
        inside.retain(|pid| !of_lab.contains(&network(*pid)));
        for pid in &inside {
            let mut enter = Command::new("nsenter");
            enter.args(["--net", "--target", &pid.to_string(), "sh", "-c"]);
            enter.arg("echo cubic > /proc/sys/net/ipv4/tcp_congestion_control");
            // A host that denies cubic to namespaces denies it to those of the lab, too.
            let _ = output(&mut enter);
        }
        if !inside.is_empty() {
            // Sockets made before have the host's congestion control.
            let via = self.via();
            self.ends().round_trips(via, CONNECT, TURNOVER)?;
        }
        Ok(())
    }
}
