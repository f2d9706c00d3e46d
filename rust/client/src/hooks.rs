//! Hooks: the commands of `PreUp`, `PostUp`, `PreDown` and `PostDown`.
//!
//! They run one after the other as in wg-quick(8): in bash, which stops at the first command that fails. Unlike
//! there, each has [`TIME_LIMIT`]; one that fails, exceeds it or is interrupted is ended with everything that it
//! started. What a hook that succeeds leaves running goes on.

pub(super) mod strays;

use std::{
    env,
    fmt::Display,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::bail;
use convoy_config::{Config, Interface, Located, Untrusted, expand_hook};
use convoy_lifecycle::Moment;
use convoy_process::terminal::Terminal;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use thiserror::Error;
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};
use tracing::{debug, info};

/// Time limit for a hook.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Reason why a hook failed. It never includes the command, which may contain a key.
#[derive(Debug, Error)]
pub(crate) enum HookError {
    /// Another user could have written the command.
    #[error("{hook}: its hooks may not run: {reason} (fix: let only root, or you, write to it)")]
    Untrusted { hook: String, reason: Untrusted },
    /// No shell was found, or no process could be started.
    #[error("{hook} could not be started: {error}")]
    NotStarted { hook: String, error: std::io::Error },
    /// It failed.
    #[error("{hook} failed ({status})")]
    Failed { hook: String, status: ExitStatus },
    /// It exceeded its time limit.
    #[error("{hook} took longer than {} s and was ended", limit.as_secs())]
    TimedOut { hook: String, limit: Duration },
}

/// Refuses hooks that another user may have written.
pub(crate) fn ensure_hooks_may_run(path: &Path, config: &Config) -> anyhow::Result<()> {
    match &config.hooks_trusted {
        Err(reason) if config.interface.has_hooks() => bail!(
            "the hooks of {} may not run: {reason} (fix: let only root, or you, write to it, or remove the hooks)",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// The hooks of one moment, ready to run.
#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: Vec<Hook>,
    trusted: Result<(), Untrusted>,
    shell: Shell,
    limit: Duration,
    /// Their output; the supervisor's own if absent.
    terminal: Option<Terminal>,
    /// Whether this process starts nothing else meanwhile, so that every new process is theirs.
    are_alone: bool,
}

#[derive(Debug)]
struct Hook {
    command: String,
    /// For messages: file, line and key.
    place: String,
}

impl Hooks {
    /// The hooks of a configuration, with the port for `%p` if one is wanted. They write to `terminal`.
    pub(crate) fn of(
        config: &Config,
        moment: Moment,
        port: Option<u16>,
        terminal: Option<&Terminal>,
    ) -> Self {
        let commands = commands(&config.interface, moment);
        Self::new(config, commands, &moment, port, terminal)
    }

    /// The hooks that follow the port of a provider; 0 if it is lost.
    pub(crate) fn of_port(config: &Config, port: u16) -> Self {
        let commands = &config.interface.post_port_forward;
        Self::new(config, commands, &"PostPortForward", Some(port), None)
    }

    fn new(
        config: &Config,
        commands: &[Located<String>],
        moment: &dyn Display,
        port: Option<u16>,
        terminal: Option<&Terminal>,
    ) -> Self {
        let hook = |command: &Located<String>| {
            let place = match config.files.position(command.at) {
                Some((path, line, _)) => format!("{}:{line}: {moment}", path.display()),
                None => moment.to_string(),
            };
            Hook {
                command: expand_hook(&command.value, &config.name, port),
                place,
            }
        };
        Self {
            hooks: commands.iter().map(hook).collect(),
            trusted: config.hooks_trusted.clone(),
            shell: Shell::find(),
            limit: TIME_LIMIT,
            terminal: terminal.and_then(|terminal| terminal.try_clone().ok()),
            are_alone: true,
        }
    }

    /// Runs the hooks and stops at the first failure. Dropping the future kills the hook that runs.
    pub(crate) async fn run(self) -> Result<(), HookError> {
        for hook in &self.hooks {
            if let Err(reason) = &self.trusted {
                return Err(HookError::Untrusted {
                    hook: hook.place.clone(),
                    reason: reason.clone(),
                });
            }
            info!("Running {}", hook.place);
            self.run_one(hook).await?;
        }
        Ok(())
    }

    /// Runs the hooks as [`Self::run`] does, while the tunnel is served.
    pub(crate) async fn run_beside(mut self) -> Result<(), HookError> {
        self.are_alone = false;
        self.run().await
    }

    async fn run_one(&self, hook: &Hook) -> Result<(), HookError> {
        let name = || hook.place.clone();
        let not_started = |error| HookError::NotStarted {
            hook: name(),
            error,
        };
        let mut command = self.shell.command();
        command.stdout(self.output()).stderr(self.output());
        let earlier = self.are_alone.then(strays::find);
        let mut child = command.spawn().map_err(not_started)?;
        let running = Running {
            shell: child.id().map(|id| Pid::from_raw(id.cast_signed())),
            earlier,
        };
        let ended = async {
            if let Some(mut stdin) = child.stdin.take() {
                // If the shell ends early, its status gives the reason.
                let _ = stdin.write_all(hook.command.as_bytes()).await;
            }
            child.wait().await
        };
        match timeout(self.limit, ended).await {
            Ok(Ok(status)) if status.success() => {
                running.succeeded();
                Ok(())
            }
            Ok(Ok(status)) => Err(HookError::Failed {
                hook: name(),
                status,
            }),
            Ok(Err(error)) => Err(not_started(error)),
            Err(_) => Err(HookError::TimedOut {
                hook: name(),
                limit: self.limit,
            }),
        }
    }

    fn output(&self) -> Stdio {
        let terminal = self.terminal.as_ref().map(Terminal::try_clone);
        match terminal {
            Some(Ok(terminal)) => terminal.into(),
            _ => Stdio::inherit(),
        }
    }
}

/// A hook's processes. Dropping it kills all of them, whatever process group they moved to.
struct Running {
    /// The leader of the hook's process group; `None` once the hook has succeeded.
    shell: Option<Pid>,
    /// Processes that earlier hooks left; `None` if new ones may belong to others, so that only the hook's process
    /// group is killed.
    earlier: Option<Vec<Pid>>,
}

impl Running {
    /// Leaves the hook's remaining processes running.
    fn succeeded(mut self) {
        self.shell = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(shell) = self.shell else { return };
        // An error means that none is left.
        let killed = killpg(shell, Signal::SIGKILL);
        debug!(%shell, ?killed, "Ended a hook");
        if let Some(earlier) = &self.earlier {
            strays::end(shell, earlier);
        }
    }
}

/// The shell that runs hooks.
#[derive(Debug)]
struct Shell {
    program: PathBuf,
    options: &'static [&'static str],
}

impl Shell {
    /// Finds bash, with wg-quick's options, or else sh.
    fn find() -> Self {
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let mut places = env::split_paths(&path).map(|place| place.join("bash"));
        match places.find(|place| place.is_file()) {
            Some(program) => Self {
                program,
                options: &["-e", "-o", "pipefail", "-O", "extglob"],
            },
            None => Self {
                program: "/bin/sh".into(),
                options: &["-e"],
            },
        }
    }

    /// Returns a shell that runs the commands given on its standard input.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.options).args(["-c", EVALUATE]);
        command.stdin(Stdio::piped()).process_group(0);
        // As in wg-quick, so that the output of programs can be parsed.
        command.env("LC_ALL", "C");
        for internal in INTERNAL {
            command.env_remove(internal);
        }
        command
    }
}

/// Reads a hook's commands from standard input, since every user can read the arguments of processes.
const EVALUATE: &str = r#"eval "$(cat)" </dev/null"#;

/// Variables that only the supervisor or the tunnel may see.
const INTERNAL: [&str; 7] = [
    "CONVOY_BACKGROUND",
    "CONVOY_METRICS_FD",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "WG_TUN_FD",
    "WG_UAPI_FD",
];

fn commands(interface: &Interface, moment: Moment) -> &[Located<String>] {
    match moment {
        Moment::PreUp => &interface.pre_up,
        Moment::PostUp => &interface.post_up,
        Moment::PreDown => &interface.pre_down,
        Moment::PostDown => &interface.post_down,
    }
}

#[cfg(test)]
mod tests;
