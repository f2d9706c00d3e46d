//! The tunnel that is to be brought up, and its caller.

use std::{future::pending, path::PathBuf, sync::Arc};

use convoy_config::{Config, Forwarding};
use convoy_daemon::args::TunnelOptions;
use convoy_keeper::tunnel::Process;
use convoy_process::{background::Parent, message::Connection, terminal::Terminal};
use convoy_supervision::Work;
use tokio::runtime::Handle;

use super::{args::EngineChoice, gateway};

/// Description of the tunnel that is to be brought up.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The configuration's absolute path.
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
    pub(crate) options: TunnelOptions,
    pub(crate) engine: EngineChoice,
    /// Listeners of the file and of the command line.
    pub(crate) forwardings: Vec<Forwarding>,
    /// Flows of peers that are forwarded outside; `None` if none are.
    pub(crate) gateway: Option<gateway::Wanted>,
    /// Bytes of a connection's buffer.
    pub(crate) buffer: Option<usize>,
    /// Where warnings go until the tunnel is up; else to standard error.
    pub(crate) terminal: Option<Terminal>,
    /// Runs the connections of ports and of peers; everything else runs where the tunnel is kept.
    pub(crate) relays: Handle,
}

/// The one who asked for the tunnel, and hears when it is ready.
#[derive(Debug)]
pub(crate) enum Caller<'a> {
    /// The first command inside; the tunnel ends with the last one.
    Command(Connection, Arc<Process>),
    /// `convoy up`; the tunnel lasts until it is taken down. `None` in the foreground.
    Terminal(&'a mut Option<Parent>),
}

impl Caller<'_> {
    /// Waits until nobody wants the tunnel any more.
    pub(super) fn leaves(&self) -> Work<()> {
        match self {
            Self::Command(_, process) => {
                let process = Arc::clone(process);
                Box::pin(async move { process.ended().await })
            }
            Self::Terminal(_) => Box::pin(pending()),
        }
    }
}
