//! The gateway of a tunnel: what peers send to addresses outside goes on from this host.

use std::sync::Arc;

use anyhow::Context;
use convoy_config::{Config, Located};
use convoy_netstack::{
    Prefix,
    namespace::Inlet,
    nat::{self, Carried, Limits, Own, Peers, Policy},
    network::{Host, Kernel, OpenSockets},
    relay::{DEFAULT_BUFFER, Method, Relay},
    stack::Dropped,
};
use convoy_proto::config::AllowedIp;
use tracing::info;

use crate::{
    cli::{NatChoice, UserspaceArgs},
    client::status::NatStatus,
    forward::{counters, limits},
};

/// Connections at once whose targets have not answered: of all peers, and of one.
const PENDING: [u32; 2] = [1_024, 256];

/// Which targets peers may reach.
#[derive(Debug)]
pub(crate) struct Wanted {
    allow: Vec<AllowedIp>,
    deny: Vec<AllowedIp>,
}

impl Wanted {
    /// As the command line or else the file says; `None` if there is to be no gateway.
    pub(super) fn of(args: &UserspaceArgs, config: &Config) -> Option<Self> {
        let of_file = &config.interface.nat;
        let is_on = match args.nat {
            Some(choice) => choice == NatChoice::User,
            None => of_file.is_on.as_ref().is_some_and(|it| it.value),
        };
        let joined = |file: &[Located<AllowedIp>], line: &[AllowedIp]| {
            let file = file.iter().map(|it| it.value);
            file.chain(line.iter().copied()).collect()
        };
        is_on.then(|| Self {
            allow: joined(&of_file.allow, &args.nat_allow),
            deny: joined(&of_file.deny, &args.nat_deny),
        })
    }
}

/// A gateway that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Gateway(nat::Gateway);

impl Gateway {
    /// Starts with what comes out of the namespace.
    pub(super) async fn start(
        wanted: Wanted,
        (inlet, inside): (Inlet, Arc<dyn OpenSockets>),
        (buffer, mtu): (Option<usize>, u16),
        config: &Config,
    ) -> anyhow::Result<Self> {
        let own = Own::follow().await;
        let own = own.context("cannot follow the addresses of this host")?;
        let prefixes = |list: Vec<AllowedIp>| list.iter().filter_map(prefix).collect();
        let peers = config.peers.len() as u32;
        let settings = nat::Settings {
            own: config
                .interface
                .addresses
                .iter()
                .map(|it| it.address)
                .collect(),
            mtu,
            peers: peers_of(config),
            policy: Policy {
                allow: prefixes(wanted.allow),
                deny: prefixes(wanted.deny),
                own,
            },
            flows: shared(limits()?.connections as u32, peers),
            pending: Limits {
                total: PENDING[0],
                peer: PENDING[1],
                peers,
            },
        };
        let relay = Relay::new(buffer.unwrap_or(DEFAULT_BUFFER), Method::Splice);
        let outside = Arc::new(Kernel(Host));
        let gateway = nat::Gateway::start(inlet, inside, outside, relay, settings);
        let gateway = gateway.context("cannot start the gateway")?;
        info!("peers reach targets outside");
        Ok(Self(gateway))
    }

    /// What was carried and refused.
    pub(super) fn status(&self) -> NatStatus {
        let carried = self.0.carried();
        let dropped = Dropped::ALL.iter();
        let dropped = dropped.map(|reason| {
            let count = carried.packets.dropped(*reason);
            (reason.name().to_owned(), count)
        });
        NatStatus {
            tcp: counters::status(&carried.tcp),
            udp: counters::status(&carried.udp),
            icmp: counters::status(&carried.icmp),
            dropped_packets: dropped.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Logs what was carried and refused.
    pub(super) fn log(&self) {
        let Carried { tcp, udp, icmp, .. } = self.0.carried();
        for (protocol, totals) in [("TCP", tcp), ("UDP", udp), ("ICMP", icmp)] {
            counters::line(&format!("nat, {protocol}"), &totals);
        }
    }
}

/// Half of all flows for one peer at most, and all for an only one.
fn shared(total: u32, peers: u32) -> Limits {
    Limits {
        total,
        peer: if peers > 1 { total / 2 } else { total },
        peers,
    }
}

fn peers_of(config: &Config) -> Peers {
    let numbered = (0..).zip(&config.peers);
    Peers::new(numbered.flat_map(|(number, peer)| {
        let allowed = peer.allowed_ips.iter();
        allowed.filter_map(move |it| Some((prefix(&it.value)?, number)))
    }))
}

fn prefix(it: &AllowedIp) -> Option<Prefix> {
    Prefix::new(it.address, it.prefix)
}
