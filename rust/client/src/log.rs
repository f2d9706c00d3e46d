//! `convoy log`: another log level for a time, of a client or of a daemon.

mod args;

use std::time::Duration;

use anyhow::{Context, bail};
use convoy_config::InterfaceName;
use convoy_daemon::places;
use convoy_keeper::tunnel;
use convoy_process::logging::{LogLevel, say};
use convoy_supervision::control::{AskError, Reply, Request, ask};

pub use args::LogArgs;

/// Asks the supervisor, or without one the daemon itself.
pub fn run(args: &LogArgs) -> anyhow::Result<()> {
    let name = places::name_of(&args.name)?;
    let request = Request::Log {
        level: args.level,
        seconds: args.time.as_secs(),
    };
    match ask(&places::control(&name), &request) {
        Ok(Reply::Done { warnings }) => {
            for warning in warnings {
                say(&format!("convoy: warning: {warning}"));
            }
            Ok(())
        }
        Ok(Reply::Failed { reason }) => bail!(reason),
        Ok(_) => bail!("the supervisor's answer is unexpected"),
        Err(AskError::NoSupervisor) if places::uapi(&name).exists() => {
            of_daemon(&name, args.level, args.time)
        }
        Err(AskError::NoSupervisor) => bail!("{name} is not up"),
        Err(error) => Err(error).with_context(|| name.to_string()),
    }
}

fn of_daemon(name: &InterfaceName, level: LogLevel, time: Duration) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(tunnel::set_log(name, level, time))
}
