//! `convoy up --userspace`.

use std::{path::PathBuf, thread::available_parallelism};

use anyhow::{Context, anyhow};
use convoy_daemon::args::TunnelOptions;
use convoy_desired::reading;
use convoy_forward::MOST_LOOKUPS;
use convoy_network::relay::moderate_wakeups;
use convoy_process::{background::Parent, terminal::Terminal};
use tokio::runtime::Builder;

use super::{Caller, Purpose, Wanted, args::UserspaceArgs, gateway, refuse_via, run, warn};

/// Supervises a tunnel of this user until it is taken down. In the background, it reports to its parent.
pub fn up(
    path: PathBuf,
    options: &TunnelOptions,
    args: &UserspaceArgs,
    parent: &mut Option<Parent>,
) -> anyhow::Result<()> {
    let of_line = args.forwarding().map_err(|error| anyhow!(error))?;
    let config = reading::read(&path)?;
    refuse_via(&config)?;
    let of_file = config.interface.forwarding.clone();
    let gateway = gateway::Wanted::of(args, &config);
    let has_ports = [&of_file, &of_line].map(|it| !it.listeners.is_empty());
    warn(
        &config,
        match gateway.is_some() && !has_ports.contains(&true) {
            true => Purpose::Gateway,
            false => Purpose::Ports,
        },
    );
    // Connections use all processors but the tunnel's.
    let processors = available_parallelism().map_or(1, usize::from);
    let threads = processors.saturating_sub(1).max(1);
    let mut relays = Builder::new_multi_thread();
    if threads == 1 {
        relays.on_thread_park(moderate_wakeups);
    }
    let relays = relays
        .worker_threads(threads)
        .on_thread_start(convoy_tun::preempt_nobody)
        .max_blocking_threads(MOST_LOOKUPS)
        .enable_all()
        .build()
        .context("cannot start the threads of connections")?;
    // The main thread polls for events itself: a busy connection thread does so only now and then.
    let control = Builder::new_current_thread()
        .max_blocking_threads(MOST_LOOKUPS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let wanted = Wanted {
        path,
        options: options.clone(),
        engine: args.engine,
        buffer: args.buffer.or(of_file.buffer),
        forwardings: vec![of_file, of_line],
        gateway,
        config,
        terminal: match parent {
            Some(_) => Some(Terminal::take().context("cannot use the terminal")?),
            None => None,
        },
        relays: relays.handle().clone(),
    };
    let outcome = control.block_on(run(wanted, Caller::Terminal(parent)));
    // A name may still be looked up.
    relays.shutdown_background();
    control.shutdown_background();
    outcome
}
