//! A temporary log level, in both processes.

use std::time::Duration;

use anyhow::bail;
use convoy_keeper::tunnel;
use convoy_process::logging::{LogLevel, live};

use super::Supervisor;

impl Supervisor {
    /// Changes the level in each process that logs; returns those that do not.
    pub(super) async fn set_log(
        &self,
        level: LogLevel,
        seconds: u64,
    ) -> anyhow::Result<Vec<String>> {
        let time = Duration::from_secs(seconds);
        let own = live::change(level, time).map_err(anyhow::Error::from);
        let tunnels = tunnel::set_log(&self.config.name, level, time).await;
        let own = own.map_err(|error| format!("the supervisor's level stays: {error:#}"));
        let tunnels = tunnels.map_err(|error| format!("the tunnel's level stays: {error:#}"));
        match (own, tunnels) {
            (Err(own), Err(tunnels)) => bail!("{own}\n{tunnels}"),
            (own, tunnels) => Ok(own.err().into_iter().chain(tunnels.err()).collect()),
        }
    }
}
