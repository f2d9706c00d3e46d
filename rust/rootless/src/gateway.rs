//! The gateway of a tunnel: forwards peers' packets for outside addresses from this host.

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::Context;
use convoy_config::{Config, Located};
use convoy_gateway::{self, Carried, Dns, Upstream};
use convoy_network::{
    Host, Kernel, Network,
    own::Own,
    policy::Policy,
    relay::Relay,
    shares::{Limits, Shares},
    translators::Translators,
};
use convoy_packet::counters::Dropped;
use convoy_proto::config::Prefix;
use convoy_report::NatStatus;
use tracing::info;

use super::{
    args::{NatChoice, UserspaceArgs},
    engine::Engine,
    peers::peers_of,
};
use crate::forward::{counters, free_descriptors};

/// Most connections at once whose targets have not answered: of all peers, and of one.
const PENDING: [u32; 2] = [1_024, 256];
/// Most DNS queries at once, and connections for them: of all peers, and of one.
const DNS: [[u32; 2]; 2] = [[1_024, 256], [256, 64]];
/// Descriptors that DNS may take.
const DNS_DESCRIPTORS: usize = (DNS[0][0] + 2 * DNS[1][0]) as usize;
/// The most flows.
const MAX_FLOWS: usize = 16_384;
/// The port of name servers (RFC 1035).
const DNS_PORT: u16 = 53;

/// Targets that peers may reach.
#[derive(Debug)]
pub(crate) struct Wanted {
    allow: Vec<Prefix>,
    deny: Vec<Prefix>,
    has_dns: bool,
}

impl Wanted {
    /// Decides by the command line or else the file; `None` if there is to be no gateway.
    pub(super) fn of(args: &UserspaceArgs, config: &Config) -> Option<Self> {
        let of_file = &config.interface.nat;
        let is_on = match args.nat {
            Some(choice) => choice == NatChoice::User,
            None => of_file.is_on.as_ref().is_some_and(|it| it.value),
        };
        let joined = |file: &[Located<Prefix>], line: &[Prefix]| {
            let file = file.iter().map(|it| it.value);
            file.chain(line.iter().copied()).collect()
        };
        is_on.then(|| Self {
            allow: joined(&of_file.allow, &args.nat_allow),
            deny: joined(&of_file.deny, &args.nat_deny),
            has_dns: args.nat_dns || of_file.dns.as_ref().is_some_and(|it| it.value),
        })
    }
}

/// A gateway that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    running: convoy_gateway::Gateway,
    has_dns: bool,
}

impl Gateway {
    /// Starts the gateway on an engine's inlet.
    pub(super) async fn start(
        wanted: Wanted,
        engine: &mut Engine,
        relay: Arc<Relay>,
        config: &Config,
        has_ports: bool,
    ) -> anyhow::Result<Self> {
        let inlet = engine.take_inlet().context("cannot start the gateway")?;
        let inlet = inlet.context("the engine has no gateway")?;
        let most = engine.most_flows().unwrap_or(usize::MAX);
        let others = relay.most_descriptors() + DNS_DESCRIPTORS;
        let most = most.min(flows(free_descriptors()?, others, has_ports)) as u32;
        let own = Own::follow().await;
        let own = own.context("cannot follow the addresses of this host")?;
        let peers = config.peers.len() as u32;
        let settings = convoy_gateway::Settings {
            own: config
                .interface
                .addresses
                .iter()
                .map(|it| it.address())
                .collect(),
            peers: peers_of(config),
            policy: Policy {
                allow: wanted.allow,
                deny: wanted.deny,
                own: own.clone(),
                translators: Translators::of_host(own),
            },
            flows: Limits::of(most, peers),
            pending: Limits {
                total: PENDING[0],
                peer: PENDING[1],
                peers,
            },
        };
        let outside = Arc::new(Kernel(Host));
        let running = convoy_gateway::Gateway::start(inlet, outside, relay, settings);
        info!("peers reach targets outside");
        Ok(Self {
            running,
            has_dns: wanted.has_dns,
        })
    }

    /// Answers DNS queries on the tunnel's own addresses, if that is wanted, on the runtime of the caller.
    pub(super) async fn serve_dns(
        &mut self,
        config: &Config,
        inside: &Arc<dyn Network>,
    ) -> anyhow::Result<()> {
        if !self.has_dns {
            return Ok(());
        }
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        for own in &config.interface.addresses {
            let at = SocketAddr::new(own.address(), DNS_PORT);
            let opened = async {
                sockets.push(inside.datagrams(at).await?);
                listeners.push(inside.listen(at).await?);
                io::Result::Ok(())
            };
            let opened = opened.await;
            opened
                .with_context(|| format!("cannot answer DNS queries on {at} inside the tunnel"))?;
        }
        let peers = config.peers.len() as u32;
        let [queries, connections] = DNS.map(|[total, peer]| Limits { total, peer, peers });
        let dns = Dns::new(
            Upstream::system(),
            Shares::new(queries),
            Shares::new(connections),
        );
        let dns = dns.context("cannot use the resolver of this host")?;
        self.running.serve_dns(dns, sockets, listeners);
        Ok(())
    }

    /// Returns the traffic and refusals.
    pub(super) fn status(&self) -> NatStatus {
        let carried = self.running.carried();
        let dropped = Dropped::ALL.iter();
        let dropped = dropped.map(|reason| {
            let count = carried.packets.dropped(*reason);
            (reason.name().to_owned(), count)
        });
        NatStatus {
            tcp: counters::status(&carried.tcp),
            udp: counters::status(&carried.udp),
            icmp: counters::status(&carried.icmp),
            dns: carried.dns.as_ref().map(counters::status),
            dropped_packets: dropped.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Logs the traffic and refusals.
    pub(super) fn log(&self) {
        let carried = self.running.carried();
        let Carried {
            tcp,
            udp,
            icmp,
            dns,
            ..
        } = carried;
        let flows = [("TCP", tcp), ("UDP", udp), ("ICMP", icmp)];
        let dns = dns.map(|dns| ("DNS", dns));
        for (protocol, totals) in flows.into_iter().chain(dns) {
            counters::line(&format!("nat, {protocol}"), &totals);
        }
    }
}

/// Returns the number of flows that there are descriptors for: two each, besides those that pipes and DNS may take. At
/// least half of all descriptors are for flows; with forwarded ports, exactly half.
fn flows(free: usize, others: usize, has_ports: bool) -> usize {
    let half = free / 4;
    let most = match has_ports {
        true => half,
        false => half.max(free.saturating_sub(others) / 2),
    };
    most.min(MAX_FLOWS)
}

#[cfg(test)]
mod tests {
    use convoy_network::relay::{DEFAULT_BUFFER, Method};

    use super::*;

    #[test]
    fn flows_leave_descriptors_for_pipes_dns_and_ports() {
        let others =
            |buffer| Relay::new(buffer, Method::Splice).most_descriptors() + DNS_DESCRIPTORS;
        let usual = others(DEFAULT_BUFFER);
        assert_eq!(flows(1_000, usual, false), 250);
        assert_eq!(flows(19_744, usual, false), 8_944);
        assert_eq!(flows(19_744, usual, true), 4_936);
        // Small buffers have many pipes.
        assert_eq!(flows(19_744, others(8 << 10), false), 8_048);
        assert_eq!(flows(usize::MAX, usual, false), MAX_FLOWS);
    }
}
