//! The network inside the tunnel. Everything that depends on how it is made asks an [`Engine`].

mod namespace;

use std::{future::pending, io, net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use anyhow::Context;
use convoy_config::Config;
use convoy_gateway::Inlet;
use convoy_namespace::{Settings, Spaces};
use convoy_network::{Family, NameServers, Network};
use convoy_smoltcp::{self, MAX_FLOWS, Stack, device_pair};

use super::{args::EngineChoice, peers};
use namespace::Inside;
pub use namespace::holder;

/// A network inside, which ends with this.
#[derive(Debug)]
pub(super) struct Engine {
    kind: Kind,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Kind {
    /// The kernel's network in a namespace of this user.
    Namespace(Inside),
    /// A TCP/IP stack of this process, and the tunnel's end of its device.
    Smoltcp(Arc<Stack>, OwnedFd),
}

/// The port of name servers (RFC 1035).
const DNS_PORT: u16 = 53;

impl Engine {
    /// Starts the engine that was chosen, or else the first that works.
    ///
    /// # Errors
    /// Why none works, with the fix.
    pub(super) fn start(
        choice: EngineChoice,
        settings: &Settings,
        config: &Config,
    ) -> anyhow::Result<Self> {
        let mut warnings = Vec::new();
        let kind = match choice {
            EngineChoice::Namespace => Kind::Namespace(Inside::start(settings)?),
            EngineChoice::Smoltcp => smoltcp(settings, config)?,
            EngineChoice::Auto => match Inside::start(settings) {
                Ok(inside) => Kind::Namespace(inside),
                Err(error) => {
                    warnings.push(format!(
                        "the slower engine `smoltcp` is used, as `namespace` does not work: {error}"
                    ));
                    smoltcp(settings, config)?
                }
            },
        };
        if let Kind::Namespace(inside) = &kind {
            warnings.extend_from_slice(inside.warnings());
        }
        Ok(Self { kind, warnings })
    }

    /// As `--engine` names it.
    pub(super) fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Namespace(_) => "namespace",
            Kind::Smoltcp(..) => "smoltcp",
        }
    }

    /// The device whose packets the tunnel process moves.
    pub(super) fn device(&self) -> io::Result<OwnedFd> {
        match &self.kind {
            Kind::Namespace(inside) => inside.tun(),
            Kind::Smoltcp(_, device) => device.try_clone(),
        }
    }

    /// Opens sockets inside, and looks names up by the name servers of `config`.
    pub(super) fn network(&self, config: &Config) -> io::Result<Arc<dyn Network>> {
        Ok(match &self.kind {
            Kind::Namespace(inside) => Arc::new(inside.network(&name_servers(config))?),
            Kind::Smoltcp(stack, _) => Arc::clone(stack) as Arc<dyn Network>,
        })
    }

    /// Returns where flows of peers come out: once, and of a namespace only if its settings have asked for that.
    pub(super) fn take_inlet(&mut self) -> io::Result<Option<Inlet>> {
        match &mut self.kind {
            Kind::Namespace(inside) => inside.take_inlet(),
            Kind::Smoltcp(stack, _) => Ok(Inlet::of_stack(stack)),
        }
    }

    /// Returns how many connections it can have at once, unless that depends on the kernel.
    pub(super) fn most_flows(&self) -> Option<usize> {
        match &self.kind {
            Kind::Namespace(_) => None,
            Kind::Smoltcp(..) => Some(MAX_FLOWS),
        }
    }

    /// Returns the namespaces that a command enters to be inside; `None` if commands cannot.
    pub(super) fn spaces(&self) -> Option<&Spaces> {
        match &self.kind {
            Kind::Namespace(inside) => Some(inside.spaces()),
            Kind::Smoltcp(..) => None,
        }
    }

    /// Returns whether it still sends what was written to connections that are closed.
    pub(super) fn is_sending(&self) -> bool {
        match &self.kind {
            Kind::Namespace(inside) => inside.is_sending(),
            Kind::Smoltcp(stack, _) => stack.flows() > 0,
        }
    }

    /// Returns what is less than it should be, and why another engine was not taken.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Waits until it has ended by itself; returns why. May be cancelled.
    pub(super) async fn ended(&self) -> anyhow::Error {
        match &self.kind {
            Kind::Namespace(inside) => inside.ended().await,
            Kind::Smoltcp(..) => pending().await,
        }
    }
}

/// The tunnel's own name servers.
fn name_servers(config: &Config) -> NameServers {
    let it = &config.interface;
    let servers = it.dns_servers.iter();
    let domains = it.dns_domains.iter().filter(|domain| !domain.route_only);
    let addresses = it.addresses.iter();
    NameServers {
        servers: servers
            .map(|server| SocketAddr::new(server.value, DNS_PORT))
            .collect(),
        search: domains.map(|domain| domain.name.clone()).collect(),
        families: addresses.map(|it| Family::of(it.address())).collect(),
    }
}

/// Starts a stack with what a namespace would have.
fn smoltcp(settings: &Settings, config: &Config) -> anyhow::Result<Kind> {
    let (ours, device) = device_pair().context("cannot make a device for the stack")?;
    let settings = convoy_smoltcp::Settings {
        addresses: settings.addresses.clone(),
        mtu: settings.mtu,
        names: name_servers(config),
        peers: Arc::new(peers::peers_of(config)),
    };
    let stack = Stack::start(ours, settings).context(
        "cannot start the engine `smoltcp`, which needs an Address, and an MTU of 1280 or more",
    )?;
    Ok(Kind::Smoltcp(Arc::new(stack), device))
}
