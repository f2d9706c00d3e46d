//! All peers of a daemon busy at once, in this process: rates, CPU time and full batches, beside wireguard-go.
//!
//! ```text
//!   hub                                         crowd
//!   10.0.0.0/16 ── wg0 daemon veth0 ─── veth ─── veth0, owns 198.18.0.0/16
//!   a socket inside the tunnel                  a socket for all peers
//! ```

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use convoy_lab::flood::{SOURCES, send_from};
use convoy_lab::measure::process;
use convoy_lab::wireguard::{End, Identity, Implementation, KeyPair, Peer};
use convoy_lab::{Lab, Namespace};
use convoy_proto::{Node, Staging};
use convoy_rows::row::{Row, Run};
use convoy_rows::table::Table;
use convoy_stages::{Host, Kept, NOW, Packet, receive};
use convoy_tun::TX_QUEUE_LEN;
use nix::sys::socket::{setsockopt, sockopt};

use super::flow::{Flow, Train};
use crate::agent::connect;
use crate::programs::ensure_root;
use crate::tunnel::Contender;

/// Its inner address is the first of the peers' network.
const HUB: Host = Host(0);
const INNER: &str = "10.0.0.0/16";
const CABLE: &str = "veth0";
/// Outer addresses of the hub and of the router to its peers.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Port of the socket inside the tunnel, and everywhere of a packet's destination.
const PORT: u16 = 5_201;
const BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// A hub under load first wants a cookie. The next attempt may follow after this time on the peer's clock.
const ATTEMPTS: u32 = 4;
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(6);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a datagram's payload, of its packet, and of that sealed.
const PAYLOAD: usize = 1_392;
const PACKET: usize = PAYLOAD + 28;
const SEALED: usize = PACKET + 32;
/// Datagrams made in advance: 90 MB.
const STORE: usize = 64_000;

/// Begins the names of scenes with busy peers.
const BUSY: &str = "busy peers";
/// A hub that is the bottleneck keeps the thread waiting for more than this share of the time.
const WAITS: f64 = 0.01;

/// Whether the peers send to the hub, and the number of consecutive datagrams for or from one peer.
type Traffic = (bool, usize);

/// Single datagrams are the worst case for batches; TCP and QUIC send trains.
const TRAFFIC: [Traffic; 4] = [(false, 1), (false, 32), (true, 1), (true, 32)];

pub(super) const LEGEND: &str = "\
Medians, with the lowest and highest value of the rounds in brackets. CPU time is that of both daemons; with busy peers,
of the hub. This sends to all its peers (down) or receives from them (up): UDP with 1,392 bytes of payload, 1 or 32
datagrams for one peer, then for the next. One thread plays all peers. It keeps 1,900 datagrams on the way, so that the
hub works as fast as it can; it counts what the hub sends without opening it, and seals in advance what the hub receives.
Every interface has Convoy's `txqueuelen`.";

pub(super) const TABLE: Table = Table {
    heading: "By busy peers",
    shows: |row| {
        let is_shown = ["kpps", "CPU ns/packet"].contains(&&row.unit[..]);
        is_shown && row.scene.starts_with(BUSY)
    },
    corner: "busy peers, traffic",
    line: |row| format!("{}{}", row.place(), &row.scene[BUSY.len()..]),
    column: |row| row.contender.replace("wireguard-go", "wg-go") + ": " + &row.unit,
    has_spread: false,
};

/// Starts a daemon with this many peers and measures each kind of traffic for about [`SECOND`].
pub(super) fn measure(contender: &Contender, peers: u32, round: u32, run: &mut Run) -> Result<()> {
    let mut crowd = Crowd::start(&contender.implementation(), peers)?;
    for traffic @ (is_up, train) in TRAFFIC {
        let (mut flow, mut cpu, mut calls) = (Flow::default(), Duration::ZERO, 0);
        while flow.time < SECOND {
            // Sealed again for each pass: the replay window accepts a counter only once.
            let trains = crowd.trains(traffic);
            let mut ends = [(&crowd.inside, PAYLOAD), (&crowd.outside, SEALED)];
            if is_up {
                ends.reverse();
            }
            let (cpu_before, calls_before) = crowd.costs(is_up)?;
            flow.carry(ends, &trains)?;
            let (cpu_after, calls_after) = crowd.costs(is_up)?;
            cpu += cpu_after - cpu_before;
            calls += calls_after - calls_before;
            ensure!(flow.arrived > 0, "nothing arrives");
        }
        let (packets, seconds) = (flow.arrived as f64, flow.time.as_secs_f64());
        let waited = flow.waited.as_secs_f64() / seconds;
        let kpps = packets / seconds / 1e3;
        let way = if is_up { "up" } else { "down" };
        let scene = format!("{BUSY}, {way}, {train} each");
        for (figure, value) in [
            (("", "kpps"), kpps),
            (("", "Gbit/s"), kpps * PAYLOAD as f64 * 8.0 / 1e6),
            (("", "CPU ns/packet"), cpu.as_nanos() as f64 / packets),
            (("", "packets/call"), packets / calls as f64),
            (("lost", "share"), 1.0 - packets / flow.sent as f64),
            (("waited for the hub", "share"), waited),
        ] {
            let row = Row::new(&scene, &contender.name, figure, round, value);
            run.push(row.at(peers.into()).limited(waited <= WAITS));
        }
    }
    Ok(())
}

struct Crowd {
    hub: End,
    to_hub: SocketAddrV4,
    peers: Vec<(Host, Node)>,
    inside: UdpSocket,
    outside: UdpSocket,
    // Dropped last: everything inside ends with it.
    _lab: Lab,
}

impl Crowd {
    /// Starts the daemon and shakes hands with all `peers`.
    fn start(implementation: &Implementation, peers: u32) -> Result<Self> {
        ensure_root()?;
        let lab = Lab::new()?;
        let (hub, crowd) = (lab.namespace("hub")?, lab.namespace("crowd")?);
        connect(&lab, (&hub, CABLE, NEAR), (&crowd, CABLE, FAR))?;
        hub.link().add_route_through(SOURCES, FAR.into())?;
        crowd.link().own_network(SOURCES)?;
        let hosts = (1..=peers).map(Host);
        let (private, public) = (HUB.key().0, as_peer(HUB).public_key);
        let keys = KeyPair { private, public };
        let identity = Identity { keys, number: 1 };
        let configured = hosts.clone().map(as_peer).collect();
        let mtu = PACKET as u32;
        let hub = End::start(&hub, implementation, &identity, configured, mtu)?;
        let (link, tunnel) = (hub.namespace.link(), hub.daemon.interface());
        link.add_address(tunnel, INNER)?;
        link.set_queue_length(tunnel, TX_QUEUE_LEN)?;
        let mut crowd = Self {
            to_hub: SocketAddrV4::new(NEAR, hub.config.listen_port),
            peers: hosts.map(|host| (host, host.node([HUB]))).collect(),
            inside: bind(&hub.namespace, HUB.inner(), PORT)?,
            outside: bind(&crowd, Ipv4Addr::UNSPECIFIED, HUB.outer().port())?,
            hub,
            _lab: lab,
        };
        crowd.shake_hands()?;
        Ok(crowd)
    }

    /// One handshake after the other.
    fn shake_hands(&mut self) -> Result<()> {
        self.outside.set_read_timeout(Some(SECOND))?;
        let mut staging = Staging::default();
        for (host, node) in &mut self.peers {
            let (source, mut kept) = (*host.outer().ip(), Kept::default());
            let send = |it: &[u8]| send_from(&self.outside, source, self.to_hub, it, None);
            let mut packet = Packet::new(HUB.inner(), PACKET);
            node.handle_outbound(&mut Some(&mut packet), NOW, &mut staging, &mut kept);
            for attempt in 0..ATTEMPTS {
                let now = NOW + attempt * BETWEEN_ATTEMPTS;
                let _ = node.handle_timeout(now);
                while let Some(control) = node.poll_control(true) {
                    send(&control.datagram)?;
                }
                let mut answer = [0; 256];
                let len = self.outside.recv(&mut answer).context("no handshake")?;
                receive(node, &answer[..len], HUB, now);
                node.drain_held(now, &mut staging, &mut kept);
                if !kept.0.is_empty() {
                    break;
                }
            }
            // The held packet confirms the session.
            send(kept.0.first().context("no session with the hub")?)?;
        }
        Ok(())
    }

    /// Trains from or to all peers in turn.
    fn trains(&mut self, (is_up, train): Traffic) -> Vec<Train> {
        let mut staging = Staging::default();
        let now = NOW + ATTEMPTS * BETWEEN_ATTEMPTS;
        let peers = self.peers.len();
        let turns = (0..STORE / train).map(|turn| {
            let (host, node) = &mut self.peers[turn % peers];
            if !is_up {
                return Train {
                    source: Ipv4Addr::UNSPECIFIED,
                    to: SocketAddrV4::new(host.inner(), PORT),
                    bytes: vec![7; train * PAYLOAD],
                };
            }
            let mut packet = Packet::between(host.inner(), HUB.inner(), PACKET);
            let mut kept = Kept::default();
            for _ in 0..train {
                node.handle_outbound(&mut Some(&mut packet), now, &mut staging, &mut kept);
            }
            Train {
                source: *host.outer().ip(),
                to: self.to_hub,
                bytes: kept.0.concat(),
            }
        });
        turns.collect()
    }

    /// The hub's CPU time, and its UDP sends or its writes to the TUN: the interfaces count a batch as one packet.
    fn costs(&self, is_up: bool) -> Result<(Duration, u64)> {
        let (link, daemon) = (self.hub.namespace.link(), &self.hub.daemon);
        let calls = match is_up {
            false => link.statistics(CABLE)?.sent_packets,
            true => link.statistics(daemon.interface())?.recv_packets,
        };
        Ok((process::cpu_time(daemon.pid())?, calls))
    }
}

/// A host in the hub's configuration.
fn as_peer(host: Host) -> Peer {
    Peer {
        public_key: host.as_peer(host.outer()).public_key.0,
        preshared_key: None,
        endpoint: Some(host.outer().into()),
        persistent_keepalive: 0,
        allowed_ips: vec![format!("{}/32", host.inner())],
    }
}

fn bind(namespace: &Namespace, address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    let socket = namespace.run(|| UdpSocket::bind((address, port)))?;
    let socket = socket.with_context(|| format!("bind {address}:{port}"))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    Ok(socket)
}
