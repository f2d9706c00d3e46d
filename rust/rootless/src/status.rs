//! The answer to `convoy status`.

use std::time::Duration;

use convoy_report::Status;
use convoy_status::describe;
use tokio::time::timeout;

use super::{gateway::Gateway, supervisor::Supervisor};

/// Time limit for the tunnel to report its state.
const PATIENCE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Returns the status of the tunnel and everything that is wrong.
    pub(super) async fn status(&mut self) -> Status {
        let mut warnings = self.warnings();
        let described = match timeout(PATIENCE, self.tunnel.report()).await {
            Ok(Some(Ok(report))) => describe(report, &self.tunnel.known()),
            Ok(Some(Err(error))) => {
                warnings.push(format!("the tunnel process does not answer: {error:#}"));
                Status::default()
            }
            Ok(None) => Status::default(),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                warnings.push(format!(
                    "the tunnel process does not answer: it is silent for {seconds} s"
                ));
                Status::default()
            }
        };
        let config = &self.tunnel.config;
        let servers = config.interface.dns_servers.iter();
        Status {
            name: config.name.to_string(),
            config: Some(self.path.clone()),
            since: Some(self.since),
            supervisor_pid: Some(std::process::id()),
            tunnel_pid: self.tunnel.pid().map(|pid| pid.as_raw().unsigned_abs()),
            mtu: Some(self.mtu.into()),
            dns: servers.map(|server| server.to_string()).collect(),
            engine: Some(self.engine.name().to_owned()),
            commands: Some(self.commands.count()),
            forwards: self.forwards.status(),
            nat: self.gateway.as_ref().map(Gateway::status),
            warnings: warnings.into_iter().chain(described.warnings).collect(),
            ..described
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.engine.warnings().to_vec();
        let present = match self.tunnel.pid() {
            Some(_) => "was started again",
            None => "is about to be started again",
        };
        match self.tunnel.deaths() {
            0 => {}
            1 => warnings.push(format!("the tunnel process has died once and {present}")),
            deaths => {
                warnings.push(format!(
                    "the tunnel process has died {deaths} times and {present}"
                ));
            }
        }
        warnings
    }
}
