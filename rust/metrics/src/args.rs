//! The switches of metrics.

use std::path::PathBuf;

use clap::Args;
use convoy_daemon::args;

use super::Address;

/// Switches of a daemon whose metrics this program serves.
pub type DaemonArgs = args::DaemonArgs<MetricsArgs>;

/// Switches of metrics.
#[derive(Clone, Debug, Args)]
pub struct MetricsArgs {
    /// Serve metrics for Prometheus on a Unix socket, or on a port of this machine
    ///
    /// GET /metrics answers in OpenMetrics text. GET /healthz answers 200 while packets can pass, otherwise 503 and
    /// the reason. A client needs a handshake within the last three minutes once it has sent anything: set
    /// PersistentKeepalive if the tunnel may be idle.
    #[arg(long, env = "CONVOY_METRICS", hide_env_values = true)]
    #[arg(value_name = "unix:PATH|127.0.0.1:PORT")]
    pub metrics: Option<Address>,

    /// Answer only requests that bear the token in FILE; a port needs one
    #[arg(long, env = "CONVOY_METRICS_TOKEN_FILE", hide_env_values = true)]
    #[arg(value_name = "FILE", requires = "metrics", value_parser = absolute)]
    pub metrics_token_file: Option<PathBuf>,
}

/// A path that outlasts the working directory.
pub fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Command line of a daemon.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
#[command(name = "convoy")]
pub(crate) struct Cli {
    pub(crate) interface: args::DeviceName,

    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}
