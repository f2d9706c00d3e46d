//! `convoy exec`: a command that sees only the tunnel, without root.
//!
//! ```text
//!  convoy exec ───── becomes ─────▶ COMMAND        inside: user, network and mount namespaces of its own
//!    │      ▲                        wg0 ◀─┐
//!    │      │ namespaces                   │ TUN
//!  supervisor ──▶ holder of the namespaces │
//!    └──────────▶ tunnel process ══════════╧═════ UDP ──▶ peer     in the host's network
//! ```
//!
//! The process that the caller started becomes the command itself, so that terminal, signals and exit status need no
//! intermediary. The supervisor is detached: once the command has ended, it ends, and everything else with it.
//!
//! 1. [`run`] asks the running supervisor for the namespaces, or starts one.
//! 2. `command` enters them, gives up all privileges and executes the command.
//! 3. [`supervise`] keeps the tunnel meanwhile ([`crate`]).

mod args;
mod command;
mod families;

use std::{
    convert::Infallible,
    env,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{self as processes, Command, ExitCode, Stdio},
};

use anyhow::Context;
use convoy_daemon::args::TunnelOptions;
use convoy_desired::reading;
use convoy_process::{
    self as process,
    background::Report,
    logging,
    message::{self, Connection},
    own_files::OwnFiles,
    panics,
    terminal::Terminal,
};
use nix::unistd::{ForkResult, dup2_stdin, fork, setsid};

use crate::{Caller, Purpose, Wanted, args::EngineChoice, process_of};

pub use args::{EXEC_SUPERVISOR, ExecArgs, ExecSupervisorArgs};
use command::Failure;

/// Becomes the command; returns only if that fails.
pub fn run(args: &ExecArgs) -> ExitCode {
    let Err(failure) = become_command(args);
    logging::fail(&failure.error);
    failure.status.into()
}

fn become_command(args: &ExecArgs) -> Result<Infallible, Failure> {
    let joined = crate::joined(&args.file)?.map(|it| crate::spaces(&it));
    let spaces = match joined {
        Some(Ok(spaces)) => spaces,
        Some(Err(error)) if error.is::<crate::Refused>() => return Err(error.into()),
        // A supervisor that is ending makes room for another.
        Some(Err(_)) | None => crate::spaces(&start(args)?)?,
    };
    command::execute(&spaces, &args.command)
}

/// Becomes the process that holds the namespaces; returns when its supervisor is gone.
pub fn hold() -> anyhow::Result<()> {
    process::name_like_the_program();
    Ok(convoy_namespace::hold()?)
}

/// Starts a supervisor.
fn start(args: &ExecArgs) -> anyhow::Result<UnixStream> {
    let file: PathBuf = std::path::absolute(convoy_config::path_of(&args.file))
        .context("cannot find the working directory")?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
    message::send(&ours, &args.daemon.options, &[]).context("cannot pass the options on")?;
    let output = match logging::is_requested() {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let mut command = Command::new(process::PROGRAM);
    command
        .arg0(env::args_os().next().unwrap_or_else(|| "convoy".into()))
        .args([EXEC_SUPERVISOR, "--"])
        .arg(file)
        .stdin(OwnedFd::from(theirs))
        .stdout(output);
    // SAFETY: `leave` makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(leave) };
    let started = command.spawn().and_then(|mut child| child.wait());
    started.context("cannot start the supervisor")?;
    Ok(ours)
}

/// Leaves the caller's session and avoids becoming a child of the command, which may wait for all of its children.
fn leave() -> io::Result<()> {
    // SAFETY: the process has one thread, as it was forked itself.
    if let ForkResult::Parent { .. } = unsafe { fork() }? {
        // SAFETY: it ends the process without what a forked one must not do.
        unsafe { libc::_exit(0) };
    }
    setsid()?;
    Ok(())
}

/// Becomes the supervisor of a tunnel for the command at the other end of the standard input.
pub fn supervise(args: &ExecSupervisorArgs) -> anyhow::Result<()> {
    process::forbid_core_dumps();
    process::bound_freed_memory();
    process::name_like_the_program();
    panics::end_process(OwnFiles::default());
    let command = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    let (options, _) = message::receive(&command).context("this is a step of `convoy exec`")?;
    let ours = command.try_clone()?;
    let outcome = serve(&args.file, options, ours);
    if let Err(error) = &outcome {
        // The command already has the namespaces, has gone, or has been given the reason why there are none.
        let _ = message::send(&command, &Report::failed(error), &[]);
        processes::exit(1);
    }
    outcome
}

fn serve(file: &Path, options: TunnelOptions, command: UnixStream) -> anyhow::Result<()> {
    if logging::is_requested() {
        logging::init(options.log_format, None)?;
    }
    let config = reading::read(file)?;
    crate::refuse_via(&config)?;
    crate::warn(&config, Purpose::Command);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let wanted = Wanted {
        config,
        path: file.to_owned(),
        options,
        engine: EngineChoice::Namespace,
        forwardings: Vec::new(),
        gateway: None,
        buffer: None,
        // From here on, the process is the command's.
        terminal: Some(Terminal::take().context("cannot use the terminal")?),
        relays: runtime.handle().clone(),
    };
    env::set_current_dir("/").context("cannot leave the working directory")?;
    let outcome = runtime.block_on(async {
        command.set_nonblocking(true)?;
        let command = Connection::new(tokio::net::UnixStream::from_std(command)?);
        let process = process_of(&command)?;
        crate::run(wanted, Caller::Command(command, process)).await
    });
    runtime.shutdown_background();
    outcome
}
