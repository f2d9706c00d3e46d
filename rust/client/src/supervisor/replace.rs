//! SIGUSR2: another version of the program has been installed, and this process becomes it.
//!
//! As after a crash, the tunnel keeps running until the new version takes it over. Routes, name servers and kill switch
//! stay in place, and no hook runs.

use std::{
    convert::Infallible,
    env,
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    process,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use convoy_daemon::places;
use convoy_host::owner;
use convoy_lifecycle::State;
use convoy_metrics::{self as metrics, LISTENER};
use convoy_process::{background::MARKER, socket};
use convoy_supervision::signals::Held;
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::{process::Command, time::timeout};
use tracing::info;

use super::Supervisor;

/// Time limit for the new version to read the configuration.
const CHECK_TIME: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Executes the program's file if the version there accepts the configuration; returns only on error.
    ///
    /// Everything that could be refused is checked first: the next process would have no way back.
    pub(super) async fn replace(&mut self, state: &State) -> anyhow::Result<Infallible> {
        self.check().await?;
        let name = &self.config.name;
        ensure!(
            self.host.is_some() && owner::exists(name),
            "the interface {name} is elsewhere, where no other process can take it over"
        );
        metrics::ensure_reopenable(&self.daemon.metrics)?;
        socket::ensure_bindable(&places::control(&self.config.name))?;
        // The file may be readable only by the other version.
        if convoy_config::read(&self.path).is_ok() {
            let changed = self.reload().await;
            changed.context("cannot make what the configuration says now")?;
        }
        info!(
            "Restarting as the version of {} that is installed now",
            self.program.display()
        );
        let mut command = process::Command::new(&self.program);
        command
            .arg0(env::args_os().next().unwrap_or_else(|| "convoy".into()))
            .args(["up", "--foreground"])
            .args(self.daemon.options.switches()?)
            .args(metrics::arguments(&self.daemon.metrics))
            .arg("--")
            .arg(&self.path)
            .env_remove(MARKER);
        let Some(mut metrics) = self.metrics.take() else {
            return self.execute(&mut command);
        };
        let _paused = metrics.pause(async || self.observe(state).await).await;
        let listener = metrics.descriptor();
        command.env(LISTENER, listener.as_raw_fd().to_string());
        let handed_over = fcntl_setfd(listener, FdFlags::empty());
        let outcome = handed_over
            .context("cannot hand the metrics' socket over")
            .and_then(|()| self.execute(&mut command));
        let _ = fcntl_setfd(listener, FdFlags::CLOEXEC);
        self.metrics = Some(metrics);
        outcome
    }

    fn execute(&self, command: &mut process::Command) -> anyhow::Result<Infallible> {
        // The next program is ended by those that come before it listens.
        let _held = Held::new()?;
        Err(command.exec()).with_context(|| format!("cannot execute {}", self.program.display()))
    }

    async fn check(&self) -> anyhow::Result<()> {
        let shown = format!("`{} check {}`", self.program.display(), self.path.display());
        let mut command = Command::new(&self.program);
        command.args(["check", "--"]).arg(&self.path);
        let status = timeout(CHECK_TIME, command.kill_on_drop(true).status()).await;
        let status = status.with_context(|| format!("{shown} does not end"))?;
        let status = status.with_context(|| format!("cannot run {shown}"))?;
        if !status.success() {
            bail!("{shown} failed ({status})");
        }
        Ok(())
    }
}
