//! Metrics for Prometheus, and a health check: `--metrics unix:PATH` or `--metrics 127.0.0.1:PORT`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | 200 and OpenMetrics text (`families`) |
//! | `GET /healthz` | 200 if packets can pass, else 503 and the reason in one line (`health`) |
//!
//! ```text
//!  Prometheus ──HTTP──▶ server ──observe──▶ Source ──▶ the snapshot that `convoy stats` shows
//! ```
//!
//! A daemon serves them itself; for a client, its supervisor does, which knows more. Figures are taken when somebody
//! asks, so nothing is counted per packet for them, and nothing runs while nobody asks.
//!
//! The program, the supervisors and the code that starts a tunnel's process call it. It changes no tunnel, connects to
//! nobody, and listens only on a Unix socket or a port of this machine.
//!
//! | bound | |
//! |---|---|
//! | connections; further ones wait in the kernel's queue | 8 |
//! | a request | one per connection, 16 KiB, 64 headers, 5 s |
//! | an answer | 8 s to prepare; 30 s for the whole connection |
//! | peers with series of their own; the others are only in the sums | 2,000 |

mod address;
pub mod args;
mod daemon;
mod families;
mod health;
mod histogram;
mod listen;
mod server;
mod token;

use std::collections::HashMap;

use convoy_report::Report;

pub use address::Address;
pub use args::{DaemonArgs, MetricsArgs};
pub use listen::{LISTENER, Listening, arguments, ensure_reopenable};
pub use server::{Pause, serve};

/// Knows how a tunnel is.
pub trait Source: Send + Sync + 'static {
    /// Returns how it is now.
    fn observe(&self) -> impl Future<Output = Observation> + Send;
}

/// How a tunnel is at one moment.
#[derive(Debug)]
pub struct Observation {
    /// Name of its interface.
    pub interface: String,
    /// The report of `convoy stats`, or why there is none.
    pub report: Result<Report, String>,
    /// `None` for a daemon without a supervisor.
    pub client: Option<Client>,
}

/// Facts that only a supervisor knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Friendly names by public key in base64.
    pub names: HashMap<String, String>,
    /// Whether nothing may leave outside of the tunnel.
    pub is_kill_switch_closed: bool,
    /// Whether packets leave outside of the tunnel for a time.
    pub is_paused: bool,
    /// Whether the interface is in another network namespace.
    pub has_left: bool,
    /// How often the tunnel's process has died.
    pub tunnel_deaths: u64,
    /// The port that a provider forwards, or 0; `None` if none is wanted.
    pub port_forwarded: Option<u16>,
    /// The warnings that `convoy status` shows.
    pub warnings: usize,
}
