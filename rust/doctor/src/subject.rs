//! The tunnel that is asked about: its configuration, and whether it is up.

use std::path::{Path, PathBuf};

use convoy_config::{Config, InterfaceName, KillSwitch, Table, encode_key};
use convoy_host::{
    Prefix,
    owner::{Refusal, Signs},
};
use convoy_report::{Condition, Status};

use super::{finding::Finding, others::Routing, reverse_path::Marking};

/// A tunnel to examine, up or not.
#[derive(Debug)]
pub struct Subject {
    /// The interface.
    pub name: InterfaceName,
    /// File of the configuration.
    pub path: PathBuf,
    /// The configuration; `None` if it is not valid.
    pub planned: Option<Planned>,
    /// Whether the tunnel is up.
    pub standing: Standing,
    /// Other programs that manage the interface.
    pub signs: Signs,
}

/// A configuration, and the client's plan for it.
#[derive(Debug)]
pub struct Planned {
    /// The configuration.
    pub config: Config,
    /// Whether there are warnings about it.
    pub has_warnings: bool,
    /// Whether all packets of IPv4, and of IPv6, go into the tunnel by Convoy's own rules.
    pub has_default: [bool; 2],
    /// Mark that the configuration asks for.
    pub mark: Option<u32>,
    /// Mark that passes a kill switch while the tunnel is down.
    pub probing_mark: Option<u32>,
    /// Warnings about routes and name servers, or why they cannot be told.
    pub foreseen: Result<Vec<String>, String>,
}

/// Whether a tunnel is up.
#[derive(Debug)]
pub enum Standing {
    /// It is not.
    Down,
    /// It is, by `convoy up`.
    Up(Box<Status>),
    /// Something else has an interface of its name.
    Foreign(Refusal),
    /// Why it cannot be told.
    Unknown(String),
}

impl Subject {
    pub(super) fn config(&self) -> Option<&Config> {
        self.planned.as_ref().map(|planned| &planned.config)
    }

    /// Returns what the tunnel says of itself, if it is up.
    pub(super) fn status(&self) -> Option<&Status> {
        match &self.standing {
            Standing::Up(status) => Some(status),
            _ => None,
        }
    }

    /// The mark of its datagrams, while it is up.
    pub(super) fn mark(&self) -> Option<u32> {
        let mark = self.status().map(|status| status.fwmark);
        mark.filter(|mark| *mark != 0)
    }

    pub(super) fn routing(&self) -> Routing<'_> {
        Routing {
            name: Some(self.name.as_str()),
            mark: self.mark(),
            has_default: self.has_default(),
        }
    }

    /// The networks that the configuration leaves outside.
    pub(super) fn excluded(&self) -> Vec<Prefix> {
        let excluded = self.config().map(|config| &config.interface.excluded_ips);
        let excluded = excluded.into_iter().flatten();
        excluded.map(|it| it.value).collect()
    }

    fn has_default(&self) -> [bool; 2] {
        let planned = self.planned.as_ref();
        planned.map(|it| it.has_default).unwrap_or_default()
    }

    /// Returns who leads IPv4 into the tunnel.
    pub(super) fn marking(&self) -> Marking {
        let Some(config) = self.config() else {
            return Marking::None;
        };
        let is_automatic = table(config) == Table::Auto;
        match (is_automatic, self.has_default()[0]) {
            (true, true) if self.mark().is_some() => Marking::InPlace,
            (true, true) => Marking::Planned,
            (false, _)
                if config
                    .interface
                    .fwmark
                    .as_ref()
                    .is_some_and(|it| it.value != 0) =>
            {
                Marking::ByHand
            }
            _ => Marking::None,
        }
    }

    pub(super) fn has_kill_switch(&self) -> bool {
        let kill_switch = self
            .config()
            .and_then(|it| it.interface.kill_switch.as_ref());
        kill_switch.is_some_and(|it| it.value != KillSwitch::Off)
    }

    /// All hooks of the configuration.
    pub(super) fn hooks(&self) -> Vec<&str> {
        let Some(it) = self.config().map(|config| &config.interface) else {
            return Vec::new();
        };
        let all = [&it.pre_up, &it.post_up, &it.pre_down, &it.post_down];
        all.into_iter()
            .flatten()
            .chain(&it.post_port_forward)
            .map(|hook| hook.value.as_str())
            .collect()
    }
}

/// Judges the configuration.
pub(super) fn judge_config(subject: &Subject) -> Vec<Finding> {
    const ID: &str = "config";
    let path = subject.path.display();
    let check = format!("`convoy check {path}` shows where.");
    let Some(planned) = &subject.planned else {
        return vec![Finding::error(ID, format!("{path} is not valid."), check)];
    };
    let config = &planned.config;
    let mut findings = vec![match planned.has_warnings {
        true => Finding::warning(ID, format!("There are warnings about {path}."), check),
        false => Finding::ok(ID, format!("{path} is valid.")),
    }];
    if let Err(untrusted) = &config.hooks_trusted
        && config.interface.has_hooks()
    {
        findings.push(Finding::error(
            "hooks",
            format!("The hooks do not run: {untrusted}."),
            "Let nobody but root write to the file and to each directory above it: `chown root`, `chmod go-w`.",
        ));
    }
    findings
}

/// Judges whether the tunnel is up, or can come up.
pub(super) fn judge_standing(subject: &Subject) -> Vec<Finding> {
    const ID: &str = "state";
    let name = &subject.name;
    let status = match &subject.standing {
        Standing::Down => return vec![Finding::ok(ID, format!("{name} is not up."))],
        Standing::Foreign(Refusal { reason, fix }) => {
            return vec![Finding::warning(ID, format!("{reason}."), fix)];
        }
        Standing::Unknown(reason) => {
            let what = format!("Whether {name} is up cannot be told: {reason}.");
            return vec![Finding::note(ID, what, "Run `convoy doctor` as root.")];
        }
        Standing::Up(status) => status,
    };
    let mut findings = vec![match status.state {
        Condition::WithoutSupervisor => Finding::error(
            ID,
            format!(
                "{name} is up, but its supervisor has died, so that nothing follows the network."
            ),
            match subject.path == convoy_config::path_of(Path::new(name.as_str())) {
                true => format!("`convoy up {name}`"),
                false => format!("`convoy up {}`", subject.path.display()),
            },
        ),
        Condition::Paused => Finding::remark(
            ID,
            format!("{name} is paused: packets leave outside the tunnel."),
        ),
        Condition::Up | Condition::Daemon => Finding::ok(ID, format!("{name} is up.")),
    }];
    let is_dead = status.state == Condition::WithoutSupervisor;
    let warnings = status.warnings.iter().filter(|_| !is_dead);
    findings.extend(warnings.map(|warning| {
        let fix = format!("`convoy status {name}` shows all of its state.");
        Finding::warning("status", format!("{name}: {warning}."), fix)
    }));
    findings
}

/// The name of each peer in findings.
pub(super) fn name_of(peer: &convoy_config::Peer) -> String {
    let key = || encode_key(&peer.public_key.value.0).as_str().to_owned();
    peer.friendly_name.clone().unwrap_or_else(key)
}

fn table(config: &Config) -> Table {
    let table = config.interface.table.as_ref();
    table.map(|table| table.value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
