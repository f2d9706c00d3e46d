//! `convoy up`: becomes the supervisor of a tunnel.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use convoy_config::Config;
use convoy_desired::{FIRST_MARK, reading};
use convoy_host::{HostError, KillSwitch};
use convoy_process::{
    self as process,
    background::{self, Output, Parent},
    logging,
    own_files::OwnFiles,
    panics,
    terminal::Terminal,
};
use convoy_rootless as userspace;
use convoy_supervision::notify;
use nix::{sys::prctl, unistd::geteuid};
use tracing::warn;

use super::{
    args::UpArgs,
    hooks::ensure_hooks_may_run,
    supervisor::{self, Wanted},
};

/// Brings a tunnel up in the background, or supervises it here until it ends.
pub fn start(args: &UpArgs) -> anyhow::Result<()> {
    // Before the working directory changes.
    let path = std::path::absolute(convoy_config::path_of(&args.file))
        .context("cannot find the working directory")?;
    if args.only_kill_switch {
        return close_kill_switch(&path);
    }
    let mut parent = Parent::detach()?;
    let stays = args.daemon.foreground || notify::is_requested();
    if parent.is_none() && !stays {
        return background::start(Output::UntilReady);
    }
    let outcome = run(path, args, &mut parent);
    let outcome = outcome.map_err(|error| with_other_ways(error, args));
    if let (Err(error), Some(parent)) = (&outcome, parent) {
        parent.fail(error);
    }
    outcome
}

/// Suggests commands that work without root, if root was missing.
fn with_other_ways(error: anyhow::Error, args: &UpArgs) -> anyhow::Error {
    let is_denial = |cause: &(dyn std::error::Error + 'static)| {
        let io = match cause.downcast_ref() {
            Some(HostError::File { cause, .. } | HostError::Kernel { cause, .. }) => Some(cause),
            _ => cause.downcast_ref::<io::Error>(),
        };
        io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    if args.userspace.userspace || geteuid().is_root() || !error.chain().any(is_denial) {
        return error;
    }
    let file = args.file.display();
    anyhow!(
        "{error:#}; without root, `convoy up {file} --userspace` forwards ports into the tunnel, and \
         `convoy exec {file} -- COMMAND` runs a program in it"
    )
}

fn run(path: PathBuf, args: &UpArgs, parent: &mut Option<Parent>) -> anyhow::Result<()> {
    process::forbid_core_dumps();
    process::bound_freed_memory();
    panics::end_process(OwnFiles::default());
    if parent.is_none() || logging::is_requested() {
        let name = convoy_config::InterfaceName::of_file(&path).ok();
        logging::init(
            args.daemon.options.log_format,
            name.as_ref().map(|name| name.as_str()),
        )?;
    }
    if args.userspace.userspace {
        return userspace::up(path, &args.daemon.options, &args.userspace, parent);
    }
    let config = read(&path)?;
    if userspace::has_forwarding(&config) {
        logging::say(&format!(
            "convoy: warning: {}",
            userspace::FORWARDS_WITHOUT_EFFECT
        ));
    }
    let wanted = Wanted {
        path,
        program: env::current_exe().context("cannot find this program's executable")?,
        config,
        daemon: args.daemon.clone(),
        adopts: args.adopt,
        terminal: match parent {
            Some(_) => Some(Terminal::take().context("cannot use the terminal")?),
            None => None,
        },
    };
    // Orphans of hooks become children of this process, so that it can kill them.
    if let Err(error) = prctl::set_child_subreaper(true) {
        warn!("cannot end processes that hooks leave running: {error}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(supervisor::run(wanted, parent));
    runtime.shutdown_background();
    outcome
}

/// Reads a configuration and checks that its hooks may run.
fn read(path: &Path) -> anyhow::Result<Config> {
    let config = reading::read(path)?;
    ensure_hooks_may_run(path, &config)?;
    Ok(config)
}

/// Closes a kill switch without its tunnel, whatever else is wrong with the file.
fn close_kill_switch(path: &Path) -> anyhow::Result<()> {
    let file = convoy_config::read_at_boot(path);
    let file = file.map_err(|report| anyhow!("{}", report.render(false)))?;
    if !file.is_persistent {
        return Ok(());
    }
    let mark = match file.is_understood {
        true => Some(file.fwmark.unwrap_or(FIRST_MARK)),
        false => {
            let path = path.display();
            logging::say(&format!(
                "convoy: warning: {path} is not understood but says `persistent`, so the kill switch closes without \
                 exceptions (`convoy check {path}` shows what is wrong)"
            ));
            None
        }
    };
    let switch = KillSwitch {
        persistent: true,
        allow_lan: file.allow_lan,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let closed = convoy_host::close_kill_switch(file.name.as_str(), switch, mark);
    Ok(runtime.block_on(closed)?)
}
