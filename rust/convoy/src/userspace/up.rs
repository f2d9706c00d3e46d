//! `convoy up --userspace`.

use std::path::PathBuf;

use anyhow::{Context, anyhow};

use super::{Caller, Wanted, gateway, run};
use crate::{background::Parent, cli::UpArgs, client::terminal::Terminal};

/// Names of the host that are looked up at the same time; each needs a thread.
const LOOKUPS: usize = 16;

/// Supervises a tunnel of this user until it is taken down. In the background, it tells its parent.
pub(crate) fn up(path: PathBuf, args: &UpArgs, parent: &mut Option<Parent>) -> anyhow::Result<()> {
    let of_line = args
        .userspace
        .forwarding()
        .map_err(|error| anyhow!(error))?;
    let config = super::read(&path, true)?;
    let of_file = config.interface.forwarding.clone();
    let wanted = Wanted {
        path,
        daemon: args.daemon.clone(),
        engine: args.userspace.engine,
        buffer: args.userspace.buffer.or(of_file.buffer),
        forwardings: vec![of_file, of_line],
        gateway: gateway::Wanted::of(&args.userspace, &config),
        config,
        terminal: match parent {
            Some(_) => Some(Terminal::take().context("cannot use the terminal")?),
            None => None,
        },
    };
    // Connections use all processors.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(LOOKUPS)
        .enable_all()
        .build()
        .context("cannot start the threads of connections")?;
    let outcome = runtime.block_on(run(wanted, Caller::Terminal(parent)));
    // A name may still be looked up.
    runtime.shutdown_background();
    outcome
}
