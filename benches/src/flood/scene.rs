//! The tunnel, the attacker beside it, and the datagrams that the attacker captured.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::flood::{self, Datagrams, Flooded, Generator};
use convoy_lab::measure::{self, Counters, Direction};
use convoy_lab::wireguard::{End, TunnelOptions, Underlay};
use convoy_lab::{Namespace, PacketSocket, UDP_SEGMENTATION, eventually};

use crate::programs;
use crate::tunnel::{Contender, Stand};

/// The cables: between attacker and right host, and of the tunnel.
const CABLE: &str = "veth1";
const TUNNEL_CABLE: &str = "veth0";
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 2);
/// A port on which nothing listens.
const CLOSED: u16 = 9;
/// WireGuard message types (paper §5.4).
const INITIATION: u8 = 1;
const DATA: u8 = 4;
/// Distinct data messages to replay: minimum and maximum.
const DATA_MESSAGES: RangeInclusive<usize> = 64..=2048;
/// Distinct initiations to replay.
const INITIATIONS: u8 = 8;
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a capture if a transfer yields too few messages.
const HEARING: Duration = Duration::from_secs(2);
/// Once two readings this far apart are equal, the daemon has processed everything it received.
const QUIET: Duration = Duration::from_millis(50);

/// A tunnel, and an attacker with a cable of its own to the right host.
pub(super) struct Scene {
    pub(super) stand: Stand,
    pub(super) captured: Captured,
    pub(super) at_daemon: Generator,
    pub(super) at_closed_port: Generator,
    /// Sends to the daemon from the left daemon's own address.
    pub(super) forging: Generator,
    /// Whether closed ports of the right host send no ICMP errors.
    pub(super) has_silent_ports: bool,
}

/// Captured datagrams of the tunnel, for replay.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) initiations: Vec<Vec<u8>>,
    pub(super) data: Vec<Vec<u8>>,
}

impl Scene {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let contender = Contender::wireguard("convoy", program);
        let mut stand = Stand::new(&contender, Duration::ZERO, &TunnelOptions::default())?;
        let bed = stand.bed();
        ensure!(bed.lab().is_root(), "packet sockets need root");
        let attacker = bed.lab().namespace("attacker")?;
        let right = bed.tunnel.right.namespace.clone();
        let (a, b) = (format!("{ATTACKER}/24"), format!("{TARGET}/24"));
        bed.lab()
            .veth(&attacker, CABLE, &[&a], &right, CABLE, &[&b], 1_500)?;
        right
            .link()
            .add_route_through(flood::SOURCES, ATTACKER.into())?;
        // The routing table expects a forged source on another cable.
        for interface in ["all", CABLE] {
            set(&right, &format!("net.ipv4.conf.{interface}.rp_filter=0"))?;
        }
        // Discard answers to forged sources.
        set(&attacker, "net.ipv4.ip_forward=0")?;
        let port = bed.tunnel.right.config.listen_port;
        let generator = |port| Generator::new(&attacker, SocketAddrV4::new(TARGET, port));
        let peer = outer(&bed.tunnel.left);
        let forging = Generator::forging(&attacker, peer, SocketAddrV4::new(TARGET, port))?;
        let (at_daemon, at_closed_port) = (generator(port)?, generator(CLOSED)?);
        // Otherwise the closed port costs the kernel an occasional ICMP error.
        let has_silent_ports = set(&right, "net.ipv4.icmp_msgs_per_sec=0").is_ok();
        let initiations = initiations(&mut stand)?;
        let captured = Captured {
            initiations,
            data: Vec::new(),
        };
        Ok(Self {
            stand,
            captured,
            at_daemon,
            at_closed_port,
            forging,
            has_silent_ports,
        })
    }

    /// Captures data messages of the running session.
    pub(super) fn capture_data(&mut self) -> anyhow::Result<()> {
        let right = self.right();
        let (wire, to) = (
            PacketSocket::hearing(&right.namespace, TUNNEL_CABLE)?,
            outer(right),
        );
        let data = thread::scope(|scope| {
            let capture = || flood::capture(&wire, to, DATA, *DATA_MESSAGES.end(), HEARING);
            let capture = scope.spawn(capture);
            // Otherwise the capture would take a batch for one datagram.
            let left = self.stand.bed().tunnel.left.namespace.clone();
            let link = left.link();
            link.set_feature(TUNNEL_CABLE, UDP_SEGMENTATION, false)?;
            self.stand
                .one_stream(Direction::Up, Duration::from_secs(1))?;
            link.set_feature(TUNNEL_CABLE, UDP_SEGMENTATION, true)?;
            let captured = capture.join();
            anyhow::Ok(captured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        })?;
        let heard = data.len();
        ensure!(
            heard >= *DATA_MESSAGES.start(),
            "only {heard} datagrams of the transfer were captured"
        );
        self.captured.data = data;
        Ok(())
    }

    /// The right daemon's counters, once it has processed everything it received.
    pub(super) fn settled(&mut self) -> anyhow::Result<Counters> {
        let drops = |counters: &Counters| counters.inbound_drops().map(|(_, n)| n).sum::<u64>();
        let tunnel = &self.stand.bed().tunnel;
        let read = || {
            let counters = measure::read(tunnel)?.right.counters;
            counters.context("this daemon does not report its counters")
        };
        let mut last = read()?;
        let settled = eventually(PATIENCE, || {
            thread::sleep(QUIET);
            match read() {
                Ok(now) if drops(&now) != drops(&last) => {
                    last = now;
                    None
                }
                now => Some(now),
            }
        });
        settled.context("the right daemon's counters do not settle")?
    }

    pub(super) fn right(&mut self) -> &End {
        &self.stand.bed().tunnel.right
    }

    /// Lines that both daemons have logged.
    pub(super) fn log_lines(&mut self) -> usize {
        let tunnel = &self.stand.bed().tunnel;
        let ends = [&tunnel.left, &tunnel.right];
        ends.iter()
            .map(|end| end.daemon.log().lines().count())
            .sum()
    }
}

/// Makes the left daemon start several handshakes, and captures their initiations.
fn initiations(stand: &mut Stand) -> anyhow::Result<Vec<Vec<u8>>> {
    let bed = stand.bed();
    let wire = PacketSocket::hearing(&bed.tunnel.right.namespace, TUNNEL_CABLE)?;
    let to = outer(&bed.tunnel.right);
    let mut initiations = Vec::new();
    for _ in 0..INITIATIONS {
        let left = &bed.tunnel.left;
        // Configuring the peer again ends its session.
        left.daemon.configure(&left.config)?;
        bed.wait_until_up()?;
        initiations.extend(flood::capture(&wire, to, INITIATION, 1, PATIENCE)?);
    }
    ensure!(!initiations.is_empty(), "no initiation was captured");
    Ok(initiations)
}

/// An end's address and port on the cable of the tunnel.
fn outer(end: &End) -> SocketAddrV4 {
    match end.outer(Underlay::V4) {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => unreachable!("asked for IPv4"),
    }
}

/// Sets a sysctl of a namespace.
fn set(namespace: &Namespace, setting: &str) -> anyhow::Result<()> {
    let mut sysctl = namespace.command("sysctl");
    programs::output(sysctl.args(["-q", "-w", setting])).map(drop)
}

/// Does `work` while `generator` sends `rate` datagrams per second.
pub(super) fn beside<T>(
    generator: &mut Generator,
    datagrams: &Datagrams,
    rate: u32,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Flooded)> {
    let end = AtomicBool::new(false);
    let mut flooded = None;
    let done = thread::scope(|scope| {
        scope.spawn(|| flooded = Some(generator.run(datagrams, rate.into(), &end)));
        let done = work();
        end.store(true, Ordering::Relaxed);
        done
    });
    let flooded = flooded.context("the generator did not run")?;
    Ok((done?, flooded.context("send the flood")?))
}
