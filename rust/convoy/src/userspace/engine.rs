//! The network inside the tunnel. Everything that depends on how it is made asks an [`Engine`].

mod names;
mod namespace;

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::Command,
    sync::Arc,
};

use convoy_config::Config;
use convoy_netstack::{
    namespace::{Settings, Spaces},
    network::Network,
};

use crate::{
    cli::{EngineChoice, NAMESPACE_HOLDER},
    client::privileges::PROGRAM,
};
use namespace::Inside;

/// This program as the holder of namespaces.
pub(crate) fn holder() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("convoy").arg(NAMESPACE_HOLDER).env_clear();
    command
}

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
}

impl Engine {
    /// Starts the engine that was chosen, or else the first that works.
    ///
    /// # Errors
    /// Why none works, with the fix.
    pub(super) fn start(choice: EngineChoice, settings: &Settings) -> anyhow::Result<Self> {
        let kind = match choice {
            EngineChoice::Auto | EngineChoice::Namespace => {
                Kind::Namespace(Inside::start(settings)?)
            }
        };
        let warnings = match &kind {
            Kind::Namespace(inside) => inside.warnings().to_vec(),
        };
        Ok(Self { kind, warnings })
    }

    /// As `--engine` names it.
    pub(super) fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Namespace(_) => "namespace",
        }
    }

    /// The device whose packets the tunnel process moves.
    pub(super) fn device(&self) -> io::Result<OwnedFd> {
        match &self.kind {
            Kind::Namespace(inside) => inside.tun(),
        }
    }

    /// Opens sockets inside, and looks names up by the name servers of `config`.
    pub(super) fn network(&self, config: &Config) -> Arc<dyn Network> {
        match &self.kind {
            Kind::Namespace(inside) => Arc::new(inside.network(config)),
        }
    }

    /// What a command enters to be inside; `None` if commands cannot.
    pub(super) fn spaces(&self) -> Option<&Spaces> {
        match &self.kind {
            Kind::Namespace(inside) => Some(inside.spaces()),
        }
    }

    /// Whether it still sends what was written to connections that are closed.
    pub(super) fn is_sending(&self) -> bool {
        match &self.kind {
            Kind::Namespace(inside) => inside.is_sending(),
        }
    }

    /// What is less than it should be, and why another engine was not taken.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Waits until it has ended by itself; returns why. May be cancelled.
    pub(super) async fn ended(&self) -> anyhow::Error {
        match &self.kind {
            Kind::Namespace(inside) => inside.ended().await,
        }
    }
}
