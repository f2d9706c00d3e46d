//! `convoy down`: asks the supervisor, or undoes what a dead one left.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use convoy_config::{Config, InterfaceName};
use convoy_daemon::places;
use convoy_host::{HostError, open_kill_switch};
use convoy_lifecycle as lifecycle;
use convoy_process::logging::{self, LogFormat, say};
use convoy_rootless as userspace;
use convoy_supervision::{
    Life, Outside,
    control::{AskError, Reply, Request, ask},
};
use tracing::warn;

use super::{
    args::DownArgs,
    lock::{ensure_free, lock, reserve},
    state::State,
    take_down::{Remains, stays},
};

/// Takes tunnels down.
pub fn run(args: &DownArgs) -> anyhow::Result<()> {
    if logging::is_requested() {
        logging::init(LogFormat::Text, None)?;
    }
    let Some(name) = &args.name else {
        return all(args);
    };
    let name = places::name_of(name)?;
    if args.after_crash {
        return after_crash(&name);
    }
    let was_up = take_down(&name, args.open_kill_switch)?;
    if args.open_kill_switch {
        return open(&name);
    }
    match was_up {
        true => Ok(()),
        false => bail!("{name} is not up"),
    }
}

/// Takes all tunnels down; a failure does not stop the others.
fn all(args: &DownArgs) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    let own = userspace::all().into_iter().map(|(name, _)| name);
    let mut names = places::all();
    // An outer tunnel goes down together with the one that goes through it.
    names.retain(|it| State::going_through(it).is_none());
    for name in names.into_iter().chain(own) {
        let mut outcome = take_down(&name, args.open_kill_switch).map(drop);
        if args.open_kill_switch {
            outcome = outcome.and(open(&name));
        }
        if let Err(error) = outcome {
            if is_elsewhere(&error) {
                say(&format!("convoy: {name}: {error:#}"));
                continue;
            }
            failures.push(format!("{name}: {error:#}"));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("{}", failures.join("\nconvoy: "))),
    }
}

/// Returns whether a tunnel belongs to another network namespace.
fn is_elsewhere(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AskError::Elsewhere(_)))
        || matches!(error.downcast_ref(), Some(HostError::Elsewhere { .. }))
}

/// Takes one tunnel down; returns whether there was anything to take down. Says what stays, unless the caller
/// is about to change that.
fn take_down(name: &InterfaceName, is_quiet: bool) -> anyhow::Result<bool> {
    match ask(&userspace::control(name), &Request::Down) {
        Ok(Reply::Done { warnings }) => {
            for warning in warnings.iter().filter(|_| !is_quiet) {
                say(&format!("convoy: {warning}"));
            }
            Ok(true)
        }
        Ok(Reply::Failed { reason }) => bail!(reason),
        Ok(Reply::Status(_)) => bail!("the supervisor's answer is unexpected"),
        Err(AskError::NoSupervisor) if places::has_remains(name) => {
            ensure_free(name)?;
            say(&format!(
                "convoy: {name} has no supervisor any more: undoing what it left"
            ));
            let notes = block_on(undo_remains(name, false))?;
            for note in notes.iter().filter(|_| !is_quiet) {
                say(&format!("convoy: {note}"));
            }
            Ok(true)
        }
        Err(AskError::NoSupervisor) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Cleans up for a service manager after a supervisor has ended: does nothing if that was orderly, and else undoes
/// everything but the kill switch, since the tunnel is to come up again.
fn after_crash(name: &InterfaceName) -> anyhow::Result<()> {
    // Its own start was refused: it is up as the outer tunnel of another.
    if State::going_through(name).is_some() {
        return Ok(());
    }
    match ask(&places::control(name), &Request::Status) {
        Err(AskError::NoSupervisor) if places::has_remains(name) => {}
        _ => return Ok(()),
    }
    let notes = block_on(undo_remains(name, true))?;
    notes.iter().for_each(|it| say(&format!("convoy: {it}")));
    say(&format!(
        "convoy: the kill switch of {name}, if it has one, stays closed: `convoy down {name} --open-kill-switch` \
         opens it"
    ));
    Ok(())
}

/// Takes down a tunnel whose supervisor is dead; returns notes for the user. Hooks run as it would have run them.
async fn undo_remains(
    name: &InterfaceName,
    keeps_kill_switch: bool,
) -> anyhow::Result<Vec<String>> {
    // The lock keeps others from bringing it up meanwhile.
    let host = lock(name).await?;
    let state = State::read(name);
    let outer = state.as_ref().and_then(|state| state.via.as_ref());
    let outer_lock = match outer.and_then(|outer| outer.parse().ok()) {
        Some(outer) => reserve(&outer).await.ok().filter(|it| !it.has_changes()),
        None => None,
    };
    let path = state.as_ref().map(|state| state.config.clone());
    let config = path.as_ref().and_then(|path| read(path, keeps_kill_switch));
    // A control socket that has no listener.
    let _ = std::fs::remove_file(places::control(name));
    let life = Life::new(lifecycle::State::going_down(lifecycle::Remains {
        hooks_begun: state.as_ref().is_some_and(|state| state.hooks_begun),
        is_up: state.as_ref().is_some_and(|state| state.is_up),
        has_config: config.is_some(),
        keeps_kill_switch,
        was_closed_early: false,
    }));
    let stays = match (&config, keeps_kill_switch) {
        (Some(config), false) => stays(config),
        // The caller tells of the kill switch, or nobody knows.
        _ => Vec::new(),
    };
    let mut remains = Remains {
        name: name.clone(),
        config,
        host: Some(host),
        outer_lock,
        tunnel: None,
        orphan: None,
        interface: None,
        port_mapping: state.as_ref().and_then(State::mapping).cloned(),
        port_forward: state.and_then(|state| state.port_forward),
        picked_mark: None,
        terminal: None,
    };
    let down = life.take_down(&mut remains, &mut Outside::nobody()).await;
    let notes = down.outcome().map_err(|reason| anyhow!(reason))?;
    Ok(notes.into_iter().chain(stays).collect())
}

/// Reads the configuration that the tunnel came up with, if that is still possible.
fn read(path: &Path, comes_up_again: bool) -> Option<Config> {
    match convoy_config::read(path) {
        Ok(loaded) => Some(loaded.config),
        Err(_) => {
            let unreadable = unreadable(path, comes_up_again);
            warn!("{unreadable}");
            say(&format!("convoy: warning: {unreadable}"));
            None
        }
    }
}

/// Reports the consequences of a configuration that cannot be read. A later `up`, if one is due, undoes the hooks.
fn unreadable(path: &Path, comes_up_again: bool) -> String {
    let path = path.display();
    match comes_up_again {
        true => format!(
            "{path} cannot be read now, so its PostDown hooks, if any, run when the tunnel comes up again"
        ),
        false => {
            format!("{path} cannot be read any more, so no hooks run (`convoy check` shows why)")
        }
    }
}

fn open(name: &InterfaceName) -> anyhow::Result<()> {
    block_on(async { Ok(open_kill_switch(name.as_str()).await?) })
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_that_the_next_up_runs_are_not_said_to_be_lost() {
        let path = Path::new("/etc/wireguard/wg0.conf");
        assert!(unreadable(path, false).contains("no hooks run"));
        let later = unreadable(path, true);
        assert!(!later.contains("no hooks"), "{later}");
        assert!(later.contains("when the tunnel comes up again"), "{later}");
    }
}
