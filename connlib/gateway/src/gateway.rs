//! Ends peers' flows here, and continues them with sockets of the host.

use std::{future::poll_fn, net::IpAddr, sync::Arc};

use convoy_network::{
    Datagrams, Listener, Network,
    counters::{Counters, Totals},
    occupants::Occupants,
    peers::Peers,
    policy::Policy,
    relay::{Relay, Tenant},
    shares::{Limits, Shares},
    waiting::Waiting,
};
use convoy_packet::{
    counters::{Dropped, Snapshot},
    icmp::Unreachable,
    packet::{ICMPV4, ICMPV6, LONGEST_PACKET, Packet, TCP, UDP},
    vnet::VnetHeader,
};
use tokio::task::JoinSet;
use tracing::warn;

use super::{
    Dns, admission::Admission, answer::Answers, connections::Connections, echo, flows::Flows,
    inlet::Inlet, mapping::Mappings, reassembly::Reassembly, shared::Shared, tcp, udp,
};

/// Packets that are read before other tasks have their turn.
const BATCH: usize = 64;

/// Settings of a gateway: what it does, and for whom.
#[derive(Debug)]
pub struct Settings {
    /// The addresses of the tunnel here, from which errors come.
    pub own: Vec<IpAddr>,
    /// The peers that send. Their addresses are no targets.
    pub peers: Peers,
    /// Targets that a peer may reach.
    pub policy: Policy,
    /// Flows at once.
    pub flows: Limits,
    /// Connections at once whose target has not answered; and as many flows of datagrams that are being made.
    pub pending: Limits,
}

/// Passes flows on until it is dropped, which ends them all.
#[derive(Debug)]
pub struct Gateway {
    pub(super) shared: Arc<Shared>,
    dns: Option<Dns>,
    tasks: JoinSet<()>,
}

/// Counts of what a gateway has carried and refused so far.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Connections.
    pub tcp: Totals,
    /// Flows of datagrams.
    pub udp: Totals,
    /// Flows of echo requests.
    pub icmp: Totals,
    /// DNS queries, if they are answered.
    pub dns: Option<Totals>,
    /// Packets that were dropped, by reason: those that begin no flow, and of a stack all others.
    pub packets: Snapshot,
}

impl Gateway {
    /// Starts with what begins flows inside; `outside` reaches targets.
    #[must_use]
    pub fn start(
        inlet: Inlet,
        outside: Arc<dyn Network>,
        relay: impl Into<Arc<Relay>>,
        settings: Settings,
    ) -> Self {
        let peers = Arc::new(settings.peers);
        let known = (Arc::clone(&peers), settings.flows.peers);
        let shared = Arc::new(Shared {
            relay: relay.into(),
            tenants: (0..=settings.flows.peers)
                .map(|_| Tenant::default())
                .collect(),
            answers: Answers::new(inlet.inside, known, settings.own),
            outside,
            connections: Connections::default(),
            syns: Waiting::default(),
            flows_of_datagrams: Flows::default(),
            mappings: Mappings::default(),
            waiting: Waiting::default(),
            flows_of_echoes: Flows::default(),
            tcp: Counters::default(),
            udp: Counters::default(),
            icmp: Counters::default(),
            admission: Admission {
                peers,
                policy: settings.policy,
                flows: Shares::new(settings.flows),
                pending: Shares::new(settings.pending),
                opening: Shares::new(settings.pending),
                occupants: Occupants::default(),
            },
        });
        let mut tasks = JoinSet::new();
        for listener in inlet.listeners {
            tasks.spawn(tcp::accept(Arc::clone(&shared), listener));
        }
        tasks.spawn(receive(Arc::clone(&shared)));
        Self {
            shared,
            dns: None,
            tasks,
        }
    }

    /// Makes a name server answer peers on these sockets inside.
    pub fn serve_dns(&mut self, dns: Dns, sockets: Vec<Datagrams>, listeners: Vec<Listener>) {
        for socket in sockets {
            let shared = Arc::clone(&self.shared);
            let peer_of = move |address| shared.admission.peers.of(address);
            self.tasks.spawn(dns.clone().serve_udp(socket, peer_of));
        }
        for listener in listeners {
            let shared = Arc::clone(&self.shared);
            let peer_of = move |address| shared.admission.peers.of(address);
            self.tasks.spawn(dns.clone().serve_tcp(listener, peer_of));
        }
        self.dns = Some(dns);
    }

    /// Returns what it has carried and refused so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let Shared { tcp, udp, icmp, .. } = &*self.shared;
        Carried {
            tcp: tcp.totals(),
            udp: udp.totals(),
            icmp: icmp.totals(),
            dns: self.dns.as_ref().map(Dns::totals),
            packets: self.shared.answers.counters().snapshot(),
        }
    }
}

/// Begins a flow for each packet that comes out of the inlet.
async fn receive(shared: Arc<Shared>) {
    let mut receiver = Receiver {
        flows: JoinSet::new(),
        reassembly: Reassembly::default(),
        shared,
    };
    let mut buffer = vec![0; LONGEST_PACKET];
    loop {
        let inside = &receiver.shared.answers.inside;
        tokio::select! {
            ready = poll_fn(|context| inside.poll_readable(context)) => match ready {
                Ok(()) => receiver.receive(&mut buffer),
                Err(error) => {
                    warn!("cannot read what begins a flow: {error}");
                    return;
                }
            },
            Some(_) = receiver.flows.join_next() => continue,
        }
        tokio::task::yield_now().await;
    }
}

struct Receiver {
    shared: Arc<Shared>,
    reassembly: Reassembly,
    flows: JoinSet<()>,
}

impl Receiver {
    fn receive(&mut self, buffer: &mut [u8]) {
        let shared = Arc::clone(&self.shared);
        for _ in 0..BATCH {
            let Ok((vnet, length)) = shared.answers.inside.read(buffer) else {
                return;
            };
            let handled = self.handle(vnet, &buffer[..length]);
            if let Err(reason) = handled {
                shared.answers.counters().drop(reason);
            }
        }
    }

    fn handle(&mut self, vnet: VnetHeader, bytes: &[u8]) -> Result<(), Dropped> {
        let packet = Packet::parse(vnet, bytes)?;
        let Some(fragment) = packet.fragment else {
            return self.begin(&packet);
        };
        let Shared {
            answers, admission, ..
        } = &*self.shared;
        let peer = admission.peers.of(packet.source);
        let peer = peer.ok_or(Dropped::BadSource)?;
        let whole = self
            .reassembly
            .add(&packet, fragment, peer, answers.counters());
        match whole {
            Some(whole) => self.begin(&Packet::parse(VnetHeader::default(), &whole)?),
            None => Ok(()),
        }
    }

    fn begin(&mut self, packet: &Packet<'_>) -> Result<(), Dropped> {
        let shared = &self.shared;
        let passed = u8::from(!shared.answers.inside.is_behind_router());
        let hops = packet.hops().saturating_sub(passed);
        if hops == 0 {
            shared.answers.unreachable(Unreachable::Expired, packet);
            return Err(Dropped::Expired);
        }
        match packet.protocol {
            TCP => tcp::begin(shared, &mut self.flows, packet),
            UDP => udp::receive(shared, &mut self.flows, (packet, hops)),
            ICMPV4 | ICMPV6 => echo::receive(shared, &mut self.flows, (packet, hops)),
            _ => {
                shared.answers.prohibit(packet);
                Err(Dropped::UnknownProtocol)
            }
        }
    }
}
