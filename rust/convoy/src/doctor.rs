//! `convoy doctor`: tells [`convoy_doctor`] of a tunnel, and shows what it finds.

mod args;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use convoy_client::status;
use convoy_config::{Config, InterfaceName, KillSwitch};
use convoy_daemon::places;
use convoy_desired::{
    FIRST_MARK, configured_mark, desired,
    foresight::{foresee, held_servers},
};
use convoy_doctor::{Diagnosis, Planned, Program, Standing, Subject, examine, examine_nat};
use convoy_endpoints::Outside;
use convoy_host::owner;
use convoy_process::{print, print_to};
use convoy_report::Condition;
use convoy_rootless::holder;
use tokio::runtime::Runtime;

pub(crate) use args::DoctorArgs;
pub(crate) use convoy_doctor::probes;

/// Checks this host, and a tunnel if one is named; prints what was found.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if args.schema {
        print(convoy_doctor::SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    let diagnosis = diagnosis(args)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&diagnosis)?))?;
    } else {
        // Strips the colours unless this is a terminal.
        print_to(anstream::stdout(), &convoy_doctor::render(&diagnosis))?;
    }
    Ok(diagnosis.severity.exit_code())
}

fn diagnosis(args: &DoctorArgs) -> anyhow::Result<Diagnosis> {
    let subject = args.name.as_deref().map(subject).transpose()?;
    if args.nat {
        return examine_nat(subject.as_ref(), &args.stun);
    }
    let program = Program {
        holder,
        tunnels: places::all().iter().map(ToString::to_string).collect(),
        can_profile: cfg!(feature = "measure"),
    };
    examine(&program, subject.as_ref())
}

/// Reads the configuration that a user means, which by a name is that of the running tunnel, and asks the tunnel.
///
/// # Errors
/// If no interface can have the name.
fn subject(name_or_file: &Path) -> anyhow::Result<Subject> {
    let name = places::name_of(name_or_file)?;
    let standing = standing(&name);
    let path = path(name_or_file, &standing);
    let loaded = convoy_config::read(&path).ok();
    let is_up = matches!(standing, Standing::Up(_));
    let planned = loaded.map(|it| plan(it.config, !it.warnings.is_empty(), is_up));
    Ok(Subject {
        planned: planned.transpose()?,
        signs: owner::signs(&name, &places::uapi(&name)),
        name,
        path,
        standing,
    })
}

fn path(name_or_file: &Path, standing: &Standing) -> PathBuf {
    let path = convoy_config::path_of(name_or_file);
    let is_name = path != name_or_file;
    match standing {
        Standing::Up(status) if is_name => status.config.clone().unwrap_or(path),
        _ => path,
    }
}

fn standing(name: &InterfaceName) -> Standing {
    match status::status(name) {
        Ok(Some(status)) if status.state != Condition::Daemon => Standing::Up(Box::new(status)),
        Err(error) => Standing::Unknown(format!("{error:#}")),
        Ok(_) if owner::exists(name) => {
            let signs = owner::signs(name, &places::uapi(name));
            Standing::Foreign(owner::refusal(name, signs))
        }
        Ok(_) => Standing::Down,
    }
}

/// Foresees what the client would do. A tunnel that is up tells most of it itself.
fn plan(config: Config, has_warnings: bool, is_up: bool) -> anyhow::Result<Planned> {
    let wanted = desired(&config, None, Outside::default());
    let mark = configured_mark(&config);
    let kill_switch = config.interface.kill_switch.as_ref();
    let is_persistent = kill_switch.is_some_and(|it| it.value == KillSwitch::Persistent);
    let foreseen = match is_up {
        true => Ok(held_servers(&config)),
        false => runtime()?.block_on(foresee(&config)),
    };
    Ok(Planned {
        has_warnings,
        has_default: [false, true].map(|ipv6| wanted.has_default(ipv6)),
        mark,
        probing_mark: mark.or(is_persistent.then_some(FIRST_MARK)),
        foreseen: foreseen.map_err(|error| format!("{error:#}")),
        config: outward(config),
    })
}

/// The configuration whose handshakes leave this host as they are: of a tunnel through another, only those of the outer one.
fn outward(mut config: Config) -> Config {
    if let Some(via) = config.via.take() {
        let outer = &via.config;
        let private_key = &outer.interface.private_key;
        config.interface.private_key.clone_from(private_key);
        config.peers.clone_from(&outer.peers);
    }
    config
}

fn runtime() -> std::io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()
}

#[cfg(test)]
mod tests;
