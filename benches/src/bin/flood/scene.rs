//! The tunnel, the attacker beside it, and what it has heard of the tunnel.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    ops::RangeInclusive,
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use convoy_lab::{
    Namespace, PacketSocket, eventually,
    flood::{self, Generator},
    measure::{self, Bed, Direction, Reading, TcpLoad},
    wireguard::{Daemon, End, Implementation, Underlay},
};

/// The cable between the attacker and the right host.
const CABLE: &str = "veth1";
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 2);
/// Nothing listens there.
const CLOSED: u16 = 9;
/// The cable of the tunnel.
const TUNNEL_CABLE: &str = "veth0";
/// WireGuard message types (paper §5.4).
const INITIATION: u8 = 1;
const DATA: u8 = 4;
/// Different data messages that are replayed: at most, and at least.
const DATA_MESSAGES: RangeInclusive<usize> = 64..=2048;
/// Different initiations that are replayed.
const INITIATIONS: u8 = 8;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a transfer is listened to that has too few of them.
const HEARING: Duration = Duration::from_secs(2);
/// In which two readings must be alike for what was received to have been worked off.
const QUIET: Duration = Duration::from_millis(50);

/// A tunnel, and an attacker who reaches the right host by a cable of its own.
pub(crate) struct Scene {
    pub(crate) bed: Bed,
    pub(crate) captured: Captured,
    pub(crate) at_daemon: Generator,
    pub(crate) at_closed_port: Generator,
    silent_ports: bool,
}

/// What the attacker has heard, to be sent once more.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) initiations: Vec<Vec<u8>>,
    pub(crate) data: Vec<Vec<u8>>,
}

impl Scene {
    pub(crate) fn new(daemon: &Implementation) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let mut bed = Bed::new(daemon, |namespace| {
            let mut agent = namespace.command(&program);
            agent.arg("traffic");
            agent
        })?;
        ensure!(bed.lab().is_root(), "packet sockets need root");
        let attacker = bed.lab().namespace("attacker")?;
        let right = bed.tunnel.right.namespace.clone();
        let of = |address: Ipv4Addr| format!("{address}/24");
        let (a, b) = (of(ATTACKER), of(TARGET));
        bed.lab()
            .veth(&attacker, CABLE, &[&a], &right, CABLE, &[&b], 1_500)?;
        right
            .link()
            .add_route_through(flood::SOURCES, ATTACKER.into())?;
        // What is answered goes nowhere.
        set(&attacker, "net.ipv4.ip_forward=0")?;
        let neighbour = right.link().ethernet_address(CABLE)?;
        let generator = |port| {
            let target = SocketAddrV4::new(TARGET, port);
            Generator::new(&attacker, CABLE, neighbour, target)
        };
        let initiations = initiations(&mut bed)?;
        Ok(Self {
            at_daemon: generator(bed.tunnel.right.config.listen_port)?,
            at_closed_port: generator(CLOSED)?,
            // Otherwise the closed port costs the kernel an ICMP error now and then.
            silent_ports: set(&right, "net.ipv4.icmp_msgs_per_sec=0").is_ok(),
            captured: Captured {
                initiations,
                data: Vec::new(),
            },
            bed,
        })
    }

    /// Whether closed ports of the right host send no ICMP errors.
    pub(crate) fn silent_ports(&self) -> bool {
        self.silent_ports
    }

    /// Takes data messages of the running session from the wire.
    pub(crate) fn capture_data(&mut self) -> anyhow::Result<()> {
        let right = &self.bed.tunnel.right;
        let wire = PacketSocket::hearing(&right.namespace, TUNNEL_CABLE)?;
        let to = outer(right);
        let load = TcpLoad {
            direction: Direction::Up,
            streams: 1,
            warmup: Duration::ZERO,
            window: Duration::from_millis(300),
        };
        let data = thread::scope(|scope| {
            let capture = || flood::capture(&wire, to, DATA, *DATA_MESSAGES.end(), HEARING);
            let capture = scope.spawn(capture);
            self.bed.ends.begin_tcp(self.bed.tunnelled(), load)?;
            self.bed.ends.finish_tcp(load)?;
            let captured = capture.join();
            anyhow::Ok(captured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        })?;
        ensure!(
            data.len() >= *DATA_MESSAGES.start(),
            "of the transfer only {} datagrams were heard",
            data.len()
        );
        self.captured.data = data;
        Ok(())
    }

    /// The right daemon, once it has worked off all that it has received.
    pub(crate) fn settled(&self) -> anyhow::Result<Reading> {
        let drops = |reading: &Reading| {
            let counters = reading.counters.as_ref();
            counters.map(|c| c.inbound_drops().map(|(_, n)| n).sum::<u64>())
        };
        let read = || measure::read(&self.bed.tunnel).map(|readings| readings.right);
        let mut last = read()?;
        let settled = eventually(PATIENCE, || {
            thread::sleep(QUIET);
            let now = read();
            let is_quiet = now.as_ref().map_or(true, |now| drops(now) == drops(&last));
            match now {
                Ok(now) if !is_quiet => {
                    last = now;
                    None
                }
                now => Some(now),
            }
        });
        Ok(settled.context("the right daemon does not come to rest")??)
    }

    pub(crate) fn right(&self) -> &Daemon {
        &self.bed.tunnel.right.daemon
    }

    /// Lines that both daemons have logged.
    pub(crate) fn log_lines(&self) -> usize {
        let ends = [&self.bed.tunnel.left, &self.bed.tunnel.right];
        ends.iter()
            .map(|end| end.daemon.log().lines().count())
            .sum()
    }

    /// Memory that the right daemon has at present (VmRSS), in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.right().pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).context("no VmRSS")
    }
}

/// Lets the left daemon begin several handshakes, and hears their initiations.
fn initiations(bed: &mut Bed) -> anyhow::Result<Vec<Vec<u8>>> {
    let right = &bed.tunnel.right;
    let wire = PacketSocket::hearing(&right.namespace, TUNNEL_CABLE)?;
    let to = outer(right);
    let mut initiations = Vec::new();
    for _ in 0..INITIATIONS {
        let left = &bed.tunnel.left;
        // A peer that is new again has no session.
        left.daemon.configure(&left.config)?;
        bed.wait_until_up()?;
        initiations.extend(flood::capture(&wire, to, INITIATION, 1, PATIENCE)?);
    }
    ensure!(!initiations.is_empty(), "no initiation was heard");
    Ok(initiations)
}

/// Where an end's daemon is to be found on the cable of the tunnel.
fn outer(end: &End) -> SocketAddrV4 {
    match end.outer(Underlay::V4) {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => unreachable!("asked for IPv4"),
    }
}

/// Sets a sysctl of a namespace.
fn set(namespace: &Namespace, setting: &str) -> anyhow::Result<()> {
    let mut sysctl = namespace.command("sysctl");
    let output = sysctl.args(["-q", "-w", setting]).output();
    let output = output.context("start sysctl (fix: apt-get install procps)")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{setting}: {}", reason.trim());
    Ok(())
}
