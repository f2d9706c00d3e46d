//! `convoy status`: shows which tunnels are up and what is wrong.
//!
//! ```text
//!  supervisor ── Reply::Status ──┐
//!                                ├──▶ Statuses ──▶ text, or JSON by its schema
//!  a daemon without one ─ report ┘
//! ```

use std::{
    collections::HashMap,
    fs, io,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use convoy_config::{InterfaceName, Loaded};
use convoy_daemon::places;
use convoy_host::is_kill_switch_closed;
use convoy_keeper::tunnel;
use convoy_process::{print, printable, socket::connect_within};
use convoy_report::{Condition, QueryError, Report, STATUS_SCHEMA, Status, Statuses, query};
use convoy_rootless as userspace;
use convoy_status::{Known, configured_switch, describe, rates, seconds, text, watch};
use convoy_supervision::control::{AskError, Reply, Request, ask};
use nix::unistd::geteuid;

use super::state::State;
use crate::args::StatusArgs;

/// The exit status of `systemctl status` for a unit that is not running.
const NOT_UP: u8 = 3;

/// The most tunnels that are asked at once.
const ASKED_AT_ONCE: usize = 16;

/// Time between the two samples of `--rates`.
const RATE_TIME: Duration = Duration::from_secs(1);

/// Prints the status of one tunnel, or of all.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    if args.schema {
        print(STATUS_SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = args.name.as_deref().map(places::name_of).transpose()?;
    if args.watch {
        watch::run(move || look(name.as_ref()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut interfaces, mut unreadable) = look(name.as_ref());
    if args.rates && !interfaces.is_empty() {
        let (earlier, begin) = (interfaces, Instant::now());
        thread::sleep(RATE_TIME);
        (interfaces, unreadable) = look(name.as_ref());
        rates::add(&mut interfaces, &earlier, begin.elapsed());
    }
    if name.is_some()
        && let Some(error) = unreadable.pop()
    {
        return Err(error);
    }
    let is_up = !interfaces.is_empty();
    let statuses = Statuses { interfaces };
    print(&match args.json {
        true => format!("{}\n", serde_json::to_string(&statuses)?),
        false => printable(&text::render(&statuses, jiff::Timestamp::now())),
    })?;
    for error in &unreadable {
        convoy_process::logging::say(&format!("convoy: {error:#}"));
    }
    if !unreadable.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if is_up {
        return Ok(ExitCode::SUCCESS);
    }
    convoy_process::logging::say(&match name {
        Some(name) => format!("convoy: {name} is not up"),
        None => "convoy: no tunnel is up".to_owned(),
    });
    Ok(ExitCode::from(NOT_UP))
}

/// Returns the status of one tunnel or of all, nothing for a tunnel that is down, and the errors of those that could
/// not be read.
fn look(name: Option<&InterfaceName>) -> (Vec<Status>, Vec<anyhow::Error>) {
    let tunnels = match name {
        Some(name) => vec![(name.clone(), userspace::control(name))],
        None => all(),
    };
    let (mut statuses, mut unreadable) = (Vec::new(), Vec::new());
    for tunnels in tunnels.chunks(ASKED_AT_ONCE) {
        for outcome in ask_all(tunnels) {
            match outcome {
                Ok(status) => statuses.extend(status),
                Err(error) => unreadable.push(error),
            }
        }
    }
    if name.is_none() && !statuses.is_empty() && !geteuid().is_root() {
        // Tunnels of other users do not concern this one.
        unreadable.retain(|error| !is_denied(error));
    }
    (statuses, unreadable)
}

fn is_denied(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|it| it.downcast_ref());
    causes.any(|it: &io::Error| it.kind() == io::ErrorKind::PermissionDenied)
}

/// Asks each on a thread of its own, so that one that hangs does not delay the others.
fn ask_all(tunnels: &[(InterfaceName, PathBuf)]) -> Vec<anyhow::Result<Option<Status>>> {
    thread::scope(|scope| {
        let ask = |tunnel: &'_ (InterfaceName, PathBuf)| {
            let (name, control) = tunnel.clone();
            scope.spawn(move || status_at(&name, &control))
        };
        let asked: Vec<_> = tunnels.iter().map(ask).collect();
        let outcomes = asked.into_iter().map(|it| it.join());
        outcomes
            .map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Lists the tunnels of `convoy up`, all userspace WireGuard daemons, and this user's tunnels without root, with their
/// control sockets.
fn all() -> Vec<(InterfaceName, PathBuf)> {
    let mut names = places::all();
    let sockets = fs::read_dir(places::uapi_directory());
    let sockets = sockets.into_iter().flatten().flatten();
    names.extend(sockets.filter_map(|socket| {
        let file = socket.file_name();
        file.to_str()?.strip_suffix(".sock")?.parse().ok()
    }));
    let with_control = names.into_iter().map(|name| {
        let control = places::control(&name);
        (name, control)
    });
    let mut tunnels: Vec<_> = with_control.chain(userspace::all()).collect();
    tunnels.sort_by(|a, b| (a.0.as_str(), &a.1).cmp(&(b.0.as_str(), &b.1)));
    tunnels.dedup();
    tunnels
}

/// Returns the status of one tunnel; `None` if it is not up.
pub fn status(name: &InterfaceName) -> anyhow::Result<Option<Status>> {
    status_at(name, &userspace::control(name))
}

fn status_at(name: &InterfaceName, control: &Path) -> anyhow::Result<Option<Status>> {
    match ask(control, &Request::Status) {
        Ok(Reply::Status(status)) => Ok(Some(*status)),
        Ok(Reply::Failed { reason }) => bail!("{name}: {reason}"),
        Ok(Reply::Done { .. }) => bail!("{name}: unexpected reply from the supervisor"),
        Err(AskError::NoSupervisor) if control == places::control(name) => without_supervisor(name),
        // A tunnel without root leaves nothing behind.
        Err(AskError::NoSupervisor) => Ok(None),
        Err(error) => Err(error).with_context(|| name.to_string()),
    }
}

/// Returns the status of a tunnel whose supervisor has died, or of a daemon that never had one, as far as the daemon
/// knows it.
fn without_supervisor(name: &InterfaceName) -> anyhow::Result<Option<Status>> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    let Some(pid) = runtime.block_on(tunnel::process_of(name)) else {
        return daemon(name);
    };
    let state = State::read(name);
    let config = state
        .as_ref()
        .and_then(|it| convoy_config::read(&it.config).ok());
    let is_closed = runtime.block_on(is_kill_switch_closed(name.as_str()));
    let (status, warning) = match runtime.block_on(tunnel::report(name)) {
        Ok(report) => (
            describe(report, &known(config.as_ref())),
            format!(
                "its supervisor has died, so nothing follows the network: `convoy up {name}` takes it over, \
                 `convoy down {name}` takes it down"
            ),
        ),
        Err(error) if tunnel::has_ended(&error) => return Ok(None),
        Err(error) => (
            Status::default(),
            format!(
                "its supervisor has died, and the tunnel process {pid} does not answer: `kill -9 {pid}` ends it, \
                 then `convoy up {name}` starts another or `convoy down {name}` cleans up ({error:#})"
            ),
        ),
    };
    let switch = config.map(|it| configured_switch(&it.config.interface));
    let paused = state.as_ref().and_then(|state| state.paused_until);
    let paused = paused.map(|until| {
        let is_over = until <= seconds(SystemTime::now());
        let end = match (switch.as_deref(), is_over) {
            (None | Some("off"), _) => {
                format!("packets leave outside the tunnel until `convoy up {name}`")
            }
            (_, true) => "the pause is over, and the kill switch is closed again".to_owned(),
            (_, false) => "the kill switch closes by itself when the pause ends".to_owned(),
        };
        format!("it was paused when its supervisor died: {end}")
    });
    Ok(Some(Status {
        name: name.to_string(),
        state: Condition::WithoutSupervisor,
        kill_switch: switch,
        kill_switch_closed: Some(is_closed),
        paused_until: state.as_ref().and_then(|state| state.paused_until),
        since: state.as_ref().map(|state| state.since),
        config: state.map(|state| state.config),
        tunnel_pid: Some(pid.as_raw().unsigned_abs()),
        warnings: [warning]
            .into_iter()
            .chain(paused)
            .chain(status.warnings)
            .collect(),
        ..status
    }))
}

/// Returns the peers' settings from the configuration, if it can be read.
fn known(config: Option<&Loaded>) -> Known {
    let known = config.map(|it| Known::new(&it.config, HashMap::new()));
    known.unwrap_or_default()
}

/// Returns the status of a daemon without a supervisor.
fn daemon(name: &InterfaceName) -> anyhow::Result<Option<Status>> {
    let report = report_of(name)?;
    Ok(report.map(|report| Status {
        name: name.to_string(),
        state: Condition::Daemon,
        ..describe(report, &Known::default())
    }))
}

/// Returns the daemon's report; `None` if there is no daemon, it is ending, or it is another program.
fn report_of(name: &InterfaceName) -> anyhow::Result<Option<Report>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let json = match query(&places::uapi(name), connect_within) {
        Ok(json) => json,
        Err(QueryError::NotConvoy { .. } | QueryError::Ending { .. }) => return Ok(None),
        Err(QueryError::NoDaemon { source, .. })
            if matches!(source.kind(), NotFound | ConnectionRefused) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| name.to_string()),
    };
    let report = serde_json::from_str(&json);
    let report = report.with_context(|| {
        format!("{name}: the daemon's answer does not fit this version of convoy")
    })?;
    Ok(Some(report))
}
