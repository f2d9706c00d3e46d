//! The listeners of a tunnel: on this host, leading inside, and inside, leading out.

use std::{net::IpAddr, sync::Arc};

use anyhow::{Context, bail};
use convoy_config::{AccessLists, Config, Forwarding, Listener, Offer, Side};
use convoy_forward::{Access, Forwarder, Rule, Running};
use convoy_network::{Host, Kernel, Network, relay::Relay};
use convoy_proto::config::Prefix;
use convoy_report::ForwardStatus;
use tracing::{debug, info};

use crate::{
    forward::{counters, limits, rules},
    peers::peers_of,
};

/// Running listeners and their targets.
#[derive(Debug)]
pub(super) struct Forwards {
    forwarder: Forwarder,
    targets: Vec<(Side, String)>,
}

impl Forwards {
    /// Starts all listeners, or none if one fails.
    pub(super) async fn start(
        wanted: Vec<Forwarding>,
        relay: Arc<Relay>,
        config: &Config,
        inside: Arc<dyn Network>,
    ) -> anyhow::Result<Self> {
        let mut forwards = Self {
            forwarder: Forwarder::new(relay, limits()?),
            targets: Vec::new(),
        };
        let networks = Networks {
            host: Arc::new(Kernel(Host)),
            inside,
        };
        for forwarding in wanted {
            if let Some(open) = forwarding.unguarded() {
                bail!(refusal(open));
            }
            let of_all = rules::access(&forwarding.access);
            for listener in forwarding.listeners {
                forwards.add(listener, &of_all, config, &networks).await?;
            }
        }
        Ok(forwards)
    }

    async fn add(
        &mut self,
        listener: Listener,
        of_all: &Access,
        config: &Config,
        networks: &Networks,
    ) -> anyhow::Result<()> {
        let target = (listener.side, describe(&listener.offer));
        let Networks { host, inside } = networks;
        let running = match listener.side {
            Side::Host => {
                let rule = rules::rule(listener, of_all.clone());
                self.forwarder.add(rule, host, inside).await?
            }
            Side::Inside => {
                let running = self.forwarder.add(reverse(listener, config)?, inside, host);
                running.await.context("inside the tunnel")?
            }
        };
        info!(at = addresses(running), side = ?target.0, "listening");
        debug!(
            at = addresses(running),
            target = target.1,
            "a listener's target"
        );
        self.targets.push(target);
        Ok(())
    }

    /// Logs the traffic and refusals of each, without targets.
    pub(super) fn log(&self) {
        for rule in self.forwarder.rules() {
            counters::line(&addresses(rule), &rule.totals());
        }
    }

    /// Returns the traffic and refusals of each.
    pub(super) fn status(&self) -> Vec<ForwardStatus> {
        let rules = self.forwarder.rules().iter().zip(&self.targets);
        let statuses = rules.map(|(rule, (side, target))| ForwardStatus {
            listen: rule.addresses().iter().map(ToString::to_string).collect(),
            is_inside: *side == Side::Inside,
            target: target.clone(),
            carried: counters::status(&rule.totals()),
        });
        statuses.collect()
    }
}

struct Networks {
    host: Arc<dyn Network>,
    inside: Arc<dyn Network>,
}

/// Returns a rule that listens inside, for peers and for commands there.
fn reverse(listener: Listener, config: &Config) -> anyhow::Result<Rule> {
    let own = config.interface.addresses.iter();
    let own: Vec<IpAddr> = own.map(|it| it.address()).collect();
    let listen = listener.inside(&own).with_context(|| {
        let at: Vec<_> = listener.addresses.iter().map(ToString::to_string).collect();
        let own: Vec<_> = own.iter().map(ToString::to_string).collect();
        format!(
            "cannot listen inside the tunnel on {}: its addresses are {}",
            at.join(" and "),
            own.join(", ")
        )
    })?;
    let of_peers = config.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let of_peers = of_peers.map(|it| it.value);
    let loopback = listen.iter().map(|at| at.ip());
    let local = own.into_iter().chain(loopback).map(Prefix::host);
    let everyone = AccessLists {
        allow: of_peers.chain(local).collect(),
        deny: Vec::new(),
    };
    let rule = rules::rule(listener, rules::access(&everyone));
    Ok(Rule {
        listen,
        peers: Arc::new(peers_of(config)),
        ..rule
    })
}

fn describe(offer: &Offer) -> String {
    let bracketed = |host: &str| match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    match offer {
        Offer::Tcp(host, port) => format!("{}:{port}", bracketed(host)),
        Offer::Udp(host, port) => format!("{}:{port}/udp", bracketed(host)),
        Offer::Socks5 => "SOCKS5".to_owned(),
        Offer::HttpConnect => "HTTP CONNECT".to_owned(),
    }
}

fn refusal(open: &Listener) -> String {
    let at: Vec<_> = open.addresses.iter().map(ToString::to_string).collect();
    let or_login = match open.offer {
        Offer::Socks5 | Offer::HttpConnect => ", or a password with --login-file",
        Offer::Tcp(..) | Offer::Udp(..) => "",
    };
    format!(
        "other hosts could use the listener {} (fix: say who may with --allow{or_login}, or listen on 127.0.0.1)",
        at.join(" and ")
    )
}

fn addresses(rule: &Running) -> String {
    let addresses: Vec<_> = rule.addresses().iter().map(ToString::to_string).collect();
    addresses.join(" ")
}
