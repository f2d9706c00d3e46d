//! A hub under test, and its peers in this process.
//!
//! ```text
//!   hub                                         crowd
//!   10.0.0.0/16 ── wg0 daemon veth0 ─── veth ─── veth0, owns 198.18.0.0/16
//!   a socket inside the tunnel                  a socket for all peers
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::flood::{SOURCES, send_from};
use convoy_lab::measure::process;
use convoy_lab::wireguard::{End, Identity, Implementation, KeyPair, Peer};
use convoy_lab::{Lab, Namespace};
use convoy_proto::{Node, Staging};
use convoy_stages::{Host, Kept, NOW, Packet, packets, receive};
use convoy_tun::TX_QUEUE_LEN;
use nix::sys::socket::{setsockopt, sockopt};

use super::flow::{Flow, Path, Train};

/// Its inner address is the first of the peers' network.
const HUB: Host = Host(0);
const INNER: &str = "10.0.0.0/16";
const CABLE: &str = "veth0";
const CABLE_MTU: u32 = 1_500;
/// Outer addresses of the hub and of the router to its peers.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Port of the socket inside the tunnel, and everywhere of a packet's destination.
const PORT: u16 = 5_201;
const BUFFER_BYTES: usize = 16 * 1024 * 1024;
/// A hub under load first wants a cookie. The next attempt may follow after this time on the peer's clock.
const ATTEMPTS: u32 = 4;
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a datagram's payload, of its packet, and of that sealed.
pub(super) const PAYLOAD: usize = 1_392;
const PACKET: usize = PAYLOAD + 28;
const SEALED: usize = PACKET + 32;
/// Datagrams made in advance: 90 MB.
const STORE: usize = 64_000;

/// A direction, and the number of consecutive datagrams for one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// From the peers to the hub.
    pub(super) is_up: bool,
    pub(super) train: usize,
}

/// One kind of traffic.
pub(super) struct Carried {
    pub(super) flow: Flow,
    pub(super) cpu: Duration,
    /// UDP sends, or writes to the TUN.
    pub(super) calls: u64,
}

pub(super) struct Crowd {
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
    pub(super) fn start(implementation: &Implementation, peers: u32) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        ensure!(lab.is_root(), "busy peers need namespaces: run as root");
        let (hub, crowd) = (lab.namespace("hub")?, lab.namespace("crowd")?);
        let (near, far) = (format!("{NEAR}/24"), format!("{FAR}/24"));
        lab.veth(&hub, CABLE, &[&near], &crowd, CABLE, &[&far], CABLE_MTU)?;
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
    fn shake_hands(&mut self) -> anyhow::Result<()> {
        self.outside.set_read_timeout(Some(PATIENCE))?;
        let mut staging = Staging::default();
        for (host, node) in &mut self.peers {
            let (source, mut kept) = (outer(*host), Kept::default());
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

    /// Measures for about `window`.
    pub(super) fn measure(
        &mut self,
        traffic: Traffic,
        window: Duration,
    ) -> anyhow::Result<Carried> {
        let (mut flow, mut cpu, mut calls) = (Flow::default(), Duration::ZERO, 0);
        let mut trains = self.trains(traffic);
        while flow.time < window {
            let (before, calls_before) = (self.cpu()?, self.calls(traffic)?);
            flow.carry(&self.path(traffic), &trains)?;
            cpu += self.cpu()? - before;
            calls += self.calls(traffic)? - calls_before;
            ensure!(flow.arrived > 0, "nothing arrives");
            if traffic.is_up {
                // A counter passes the replay window once.
                trains = self.trains(traffic);
            }
        }
        Ok(Carried { flow, cpu, calls })
    }

    fn path(&self, traffic: Traffic) -> Path<'_> {
        let (inside, outside) = ((&self.inside, PAYLOAD), (&self.outside, SEALED));
        let ((from, sent), (at, arriving)) = match traffic.is_up {
            false => (inside, outside),
            true => (outside, inside),
        };
        Path {
            from,
            sent,
            at,
            arriving,
        }
    }

    /// Trains from or to all peers in turn.
    fn trains(&mut self, Traffic { is_up, train }: Traffic) -> Vec<Train> {
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
            let (from, to) = (host.inner(), HUB.inner());
            let mut packet = Packet::from(packets::Flow { from, to }.udp(PACKET));
            let mut kept = Kept::default();
            for _ in 0..train {
                node.handle_outbound(&mut Some(&mut packet), now, &mut staging, &mut kept);
            }
            Train {
                source: outer(*host),
                to: self.to_hub,
                bytes: kept.0.concat(),
            }
        });
        turns.collect()
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(process::cpu_time(self.hub.daemon.pid())?)
    }

    /// UDP sends of the hub, or its writes to the TUN: the interfaces count a batch as one packet.
    fn calls(&self, traffic: Traffic) -> anyhow::Result<u64> {
        let link = self.hub.namespace.link();
        Ok(match traffic.is_up {
            false => link.statistics(CABLE)?.tx_packets,
            true => link.statistics(self.hub.daemon.interface())?.rx_packets,
        })
    }
}

/// A host in the hub's configuration.
fn as_peer(host: Host) -> Peer {
    Peer {
        public_key: host.as_peer(host.outer()).public_key.0,
        preshared_key: None,
        endpoint: Some(host.outer()),
        persistent_keepalive: 0,
        allowed_ips: vec![format!("{}/32", host.inner())],
    }
}

fn outer(host: Host) -> Ipv4Addr {
    match host.outer().ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => unreachable!("the stages use IPv4"),
    }
}

fn bind(namespace: &Namespace, address: Ipv4Addr, port: u16) -> anyhow::Result<UdpSocket> {
    let socket = namespace.run(|| UdpSocket::bind((address, port)))?;
    let socket = socket.with_context(|| format!("bind {address}:{port}"))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    Ok(socket)
}
