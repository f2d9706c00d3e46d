//! What the supervisor tells of itself.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::timeout;

use super::Supervisor;
use crate::client::{
    control::Reply,
    kept::KeptTunnel,
    status::{Condition, Status, line, of_device, seconds},
    tunnel::RunningDevice,
};

/// How long the tunnel may take to show its state.
const PATIENCE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// The answer to `convoy status`.
    pub(super) async fn status(&mut self) -> Reply {
        let process = self.tunnel.as_mut().and_then(KeptTunnel::process);
        let device = match process {
            Some(process) => match timeout(PATIENCE, process.device()).await {
                Ok(device) => device,
                Err(_) => Err(anyhow!("it is silent for {} s", PATIENCE.as_secs())),
            },
            None => Ok(RunningDevice::default()),
        };
        let (device, silence) = match device {
            Ok(device) => (device, None),
            Err(error) => (
                RunningDevice::default(),
                Some(format!("the tunnel process does not answer: {error:#}")),
            ),
        };
        let problems = self.addresses.problems(&self.config);
        let it = &self.config.interface;
        let pid = self.tunnel.as_ref().and_then(KeptTunnel::pid);
        let status = Status {
            name: self.config.name.to_string(),
            state: self.condition(),
            config: Some(self.path.clone()),
            since: Some(self.state.since),
            paused_until: self.paused_until.map(seconds),
            supervisor_pid: Some(std::process::id()),
            tunnel_pid: pid.map(|pid| pid.as_raw().unsigned_abs()),
            mtu: Some(self.applied.mtu),
            kill_switch: Some(match &it.kill_switch {
                Some(switch) => switch.value.to_string(),
                None => "off".to_owned(),
            }),
            dns: it
                .dns_servers
                .iter()
                .map(|server| server.to_string())
                .collect(),
            warnings: self.warnings().into_iter().chain(silence).collect(),
            ..of_device(&device, Some(&self.config), &problems)
        };
        Reply::Status(Box::new(status))
    }

    /// A line for the service manager.
    pub(super) fn line(&self) -> String {
        line(&self.path, self.condition())
    }

    fn condition(&self) -> Condition {
        match self.paused_until {
            Some(_) => Condition::Paused,
            None => Condition::Up,
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.applied.warnings.clone();
        warnings.extend(self.path_mtu.warnings(self.applied.mtu));
        if self.host.is_none() {
            warnings.push("the interface is in another network namespace".to_owned());
        }
        let Some(tunnel) = &self.tunnel else {
            return warnings;
        };
        let deaths = match tunnel.deaths() {
            0 => return warnings,
            1 => "once".to_owned(),
            deaths => format!("{deaths} times"),
        };
        let present = match tunnel.pid() {
            Some(_) => "was started again",
            None => "is about to be started again",
        };
        warnings.push(format!(
            "the tunnel process has died {deaths} and {present}: see the log"
        ));
        warnings
    }
}
