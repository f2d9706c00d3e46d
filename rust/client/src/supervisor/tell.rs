//! The supervisor's reports about itself.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use convoy_desired::kill_switch;
use convoy_host::{is_kill_switch_closed, owner};
use convoy_keeper::KeptTunnel;
use convoy_lifecycle::State;
use convoy_report::{Condition, Status};
use convoy_status::{Known, configured_switch, describe, line, seconds};
use convoy_supervision::{control::Reply, events::Event};
use tokio::{sync::mpsc, time::timeout};

use super::Supervisor;

/// Time limit for the tunnel to report its state.
const PATIENCE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Makes the answer to `convoy status`.
    pub(super) async fn status(&mut self, state: &State) -> Reply {
        let process = self.tunnel.as_mut().and_then(KeptTunnel::process);
        let report = match process {
            Some(process) => match timeout(PATIENCE, process.report()).await {
                Ok(report) => report.map(Some),
                Err(_) => Err(anyhow!("it is silent for {} s", PATIENCE.as_secs())),
            },
            None => Ok(None),
        };
        let (report, silence) = match report {
            Ok(report) => (report, None),
            Err(error) => (
                None,
                Some(format!("the tunnel process does not answer: {error:#}")),
            ),
        };
        let problems = self.addresses.problems(&self.config);
        let known = Known::new(&self.config, problems);
        let described = report.map(|report| describe(report, &known));
        let described = described.unwrap_or_default();
        let it = &self.config.interface;
        let pid = self.tunnel.as_ref().and_then(KeptTunnel::pid);
        let is_closed = self.is_kill_switch_closed().await;
        let status = Status {
            name: self.config.name.to_string(),
            state: condition(state),
            config: Some(self.path.clone()),
            since: Some(self.state.since),
            paused_until: state.paused_until().map(seconds),
            supervisor_pid: Some(std::process::id()),
            tunnel_pid: pid.map(|pid| pid.as_raw().unsigned_abs()),
            mtu: Some(self.applied.mtu),
            kill_switch: Some(configured_switch(it)),
            kill_switch_closed: Some(is_closed),
            dns: it
                .dns_servers
                .iter()
                .map(|server| server.to_string())
                .collect(),
            port_mapping: self.port_map.status(),
            port_forward: self.port_forward.status(),
            warnings: self
                .warnings(is_closed, state)
                .into_iter()
                .chain(silence)
                .chain(described.warnings)
                .collect(),
            ..described
        };
        Reply::Status(Box::new(status))
    }

    /// Adds a subscriber, which gets all events from now on.
    pub(super) async fn subscribe(
        &mut self,
        subscriber: Option<mpsc::Sender<Event>>,
    ) -> anyhow::Result<Vec<String>> {
        let subscriber = subscriber.context("a subscription needs a subscriber")?;
        // Its present state is not an event.
        self.tell_kill_switch().await;
        if self.events.subscribe(subscriber) {
            // Before the report, so that nothing is missed in between.
            self.follow_handshakes().await?;
            if let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) {
                let report = timeout(PATIENCE, process.report()).await;
                let report = report.context("the tunnel process is silent")??;
                self.events.begin(&report, Instant::now());
            }
        }
        Ok(Vec::new())
    }

    /// Announces that the kill switch was opened or closed, if it was.
    pub(super) async fn tell_kill_switch(&mut self) {
        let is_closed = self.is_kill_switch_closed().await;
        self.events.kill_switch(is_closed);
    }

    /// Returns whether a closed kill switch is in the kernel, whatever the file says.
    pub(super) async fn is_kill_switch_closed(&self) -> bool {
        if kill_switch(&self.config.interface).is_none() {
            return false;
        }
        match &self.host {
            Some(host) => host.is_kill_switch_closed().await,
            None => is_kill_switch_closed(self.config.name.as_str()).await,
        }
    }

    /// Makes a line for the service manager.
    pub(super) fn line(&self, state: &State) -> String {
        line(&self.path, condition(state))
    }

    /// Returns the warnings of `convoy status`.
    pub(super) fn warnings(&self, is_kill_switch_closed: bool, state: &State) -> Vec<String> {
        let mut warnings = self.applied.warnings.clone();
        let wants_kill_switch = kill_switch(&self.config.interface).is_some();
        if wants_kill_switch && !is_kill_switch_closed && state.paused_until().is_none() {
            warnings.push(format!(
                "the kill switch is open: another program has removed its rules, and they are not restored yet \
                 (fix: `nft list table inet convoy_{}` and the log show why)",
                self.config.name
            ));
        }
        warnings.extend(self.path_mtu.warnings(self.applied.mtu));
        let name = &self.config.name;
        if state.has_moved() {
            warnings.push("the interface is in another network namespace".to_owned());
        } else if !owner::exists(name) {
            warnings.push(format!(
                "there is no interface {name}: nothing goes through the tunnel (fix: if it has another name, \
                 `ip link set NAME name {name}`)"
            ));
        }
        warnings.extend(self.unreached());
        let problems = self.addresses.problems_of_servers();
        warnings.extend(problems.map(|it| format!("a STUN or TURN server has no address: {it}")));
        let Some(tunnel) = &self.tunnel else {
            return warnings;
        };
        let deaths = match tunnel.deaths() {
            0 => return warnings,
            1 => "once".to_owned(),
            deaths => format!("{deaths} times"),
        };
        let reason = match tunnel.last_reason() {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        let present = match tunnel.pid() {
            Some(_) => "was started again, with what its file says and `wg set` had changed",
            None => "is about to be started again",
        };
        warnings.push(format!(
            "the tunnel process has died {deaths}{reason} and {present}: see the log"
        ));
        warnings
    }
}

fn condition(state: &State) -> Condition {
    match state.paused_until() {
        Some(_) => Condition::Paused,
        None => Condition::Up,
    }
}
