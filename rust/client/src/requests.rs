//! `convoy reload`, `pause` and `resume`: requests to a supervisor.

use std::path::Path;

use anyhow::{Context, bail};
use convoy_daemon::places;
use convoy_process::logging::say;
use convoy_rootless as userspace;
use convoy_supervision::control::{AskError, Reply, Request, ask};

use super::args::{PauseArgs, ReloadArgs, ResumeArgs};

/// Applies the changes in a tunnel's files.
pub fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    request(&args.name, &Request::Reload)
}

/// Lets packets out beside the tunnel for a time.
pub fn pause(args: &PauseArgs) -> anyhow::Result<()> {
    let seconds = args.time.as_secs();
    request(&args.name, &Request::Pause { seconds })
}

/// Ends a pause.
pub fn resume(args: &ResumeArgs) -> anyhow::Result<()> {
    request(&args.name, &Request::Resume)
}

fn request(name: &Path, request: &Request) -> anyhow::Result<()> {
    let name = places::name_of(name)?;
    match ask(&userspace::control(&name), request) {
        Ok(Reply::Done { warnings }) => {
            for warning in warnings {
                say(&format!("convoy: warning: {warning}"));
            }
            Ok(())
        }
        Ok(Reply::Failed { reason }) => bail!(reason),
        Ok(Reply::Status(_)) => bail!("the supervisor's answer is unexpected"),
        Err(AskError::NoSupervisor) if places::has_remains(&name) => bail!(
            "{name} has no supervisor any more (fix: `convoy up {name}` takes it over, `convoy down {name}` \
             undoes what is left)"
        ),
        Err(AskError::NoSupervisor) => bail!("{name} is not up"),
        Err(error) => Err(error).with_context(|| name.to_string()),
    }
}
