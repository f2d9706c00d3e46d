//! The tunnel, the attacker beside it, and the datagrams that the attacker captured.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use convoy_lab::flood::{self, Datagrams, Flooded, Generator};
use convoy_lab::measure::{self, Bed, Counters, Direction};
use convoy_lab::wireguard::{End, Underlay};
use convoy_lab::{PacketSocket, UDP_SEGMENTATION, eventually};

use crate::agent::{connect, set};
use crate::programs;
use crate::tunnel::{Contender, Set, Stand};

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
    /// Captured datagrams of the tunnel, for replay.
    pub(super) initiations: Vec<Vec<u8>>,
    pub(super) data: Vec<Vec<u8>>,
    /// Send to the closed port, and to the daemon.
    pub(super) generators: [Generator; 2],
    /// Sends to the daemon from the left daemon's own address.
    pub(super) forging: Generator,
}

impl Scene {
    pub(super) fn new(program: &Path, notes: &mut Vec<String>) -> Result<Self> {
        programs::ensure_root()?;
        let contender = Contender::wireguard("convoy", program);
        let mut stand = Stand::new(&contender, Set::Programs, Duration::ZERO)?;
        let bed = &mut stand.bed;
        let attacker = bed.lab().namespace("attacker")?;
        let right = bed.tunnel.right.namespace.clone();
        let (near, far) = ((&attacker, CABLE, ATTACKER), (&right, CABLE, TARGET));
        connect(bed.lab(), near, far)?;
        let link = right.link();
        link.add_route_through(flood::SOURCES, ATTACKER.into())?;
        // The routing table expects a forged source on another cable.
        for interface in ["all", CABLE] {
            set(&right, &format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        // Discard answers to forged sources.
        set(&attacker, "ipv4/ip_forward", "0")?;
        if set(&right, "ipv4/icmp_msgs_per_sec", "0").is_err() {
            notes.push("The closed port answers some datagrams by ICMP errors.".to_owned());
        }
        let daemon = SocketAddrV4::new(TARGET, bed.tunnel.right.config.listen_port);
        let closed = SocketAddrV4::new(TARGET, CLOSED);
        let generator = |target| Generator::new(&attacker, None, target);
        Ok(Self {
            generators: [generator(closed)?, generator(daemon)?],
            forging: Generator::new(&attacker, Some(outer(&bed.tunnel.left)), daemon)?,
            initiations: initiations(bed)?,
            data: Vec::new(),
            stand,
        })
    }

    /// Captures data messages of the running session.
    pub(super) fn capture_data(&mut self) -> Result<()> {
        let right = self.right();
        let wire = PacketSocket::hearing(&right.namespace, TUNNEL_CABLE)?;
        let to = outer(right);
        let left = self.stand.bed.tunnel.left.namespace.clone();
        let link = left.link();
        self.data = thread::scope(|scope| {
            let capture = || flood::capture(&wire, to, DATA, *DATA_MESSAGES.end(), HEARING);
            let capture = scope.spawn(capture);
            // Otherwise the capture would take a batch for one datagram.
            link.set_feature(TUNNEL_CABLE, UDP_SEGMENTATION, false)?;
            let second = Duration::from_secs(1);
            self.stand.one_stream(Direction::Up, second)?;
            link.set_feature(TUNNEL_CABLE, UDP_SEGMENTATION, true)?;
            let captured = capture.join();
            anyhow::Ok(captured.unwrap_or_else(|panic| resume_unwind(panic))?)
        })?;
        let heard = self.data.len();
        if heard < *DATA_MESSAGES.start() {
            bail!("only {heard} datagrams of the transfer were captured");
        }
        Ok(())
    }

    /// The right daemon's counters, once it has processed everything it received.
    pub(super) fn settled(&self) -> Result<Counters> {
        let drops = |counters: &Counters| counters.inbound_drops().map(|(_, n)| n).sum::<u64>();
        let tunnel = &self.stand.bed.tunnel;
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

    pub(super) fn right(&self) -> &End {
        &self.stand.bed.tunnel.right
    }

    /// Lines that both daemons have logged.
    pub(super) fn log_lines(&self) -> usize {
        let lines = |end: &End| end.daemon.log().lines().count();
        lines(&self.stand.bed.tunnel.left) + lines(self.right())
    }
}

/// Makes the left daemon start several handshakes, and captures their initiations.
fn initiations(bed: &mut Bed) -> Result<Vec<Vec<u8>>> {
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

/// Does `work` while `generator` sends `rate` datagrams per second.
pub(super) fn beside<T>(
    generator: &mut Generator,
    datagrams: &Datagrams,
    rate: u32,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Flooded)> {
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood = scope.spawn(|| generator.run(datagrams, rate.into(), &end));
        let done = work();
        end.store(true, Ordering::Relaxed);
        let flooded = flood.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((done?, flooded.context("send the flood")?))
    })
}
