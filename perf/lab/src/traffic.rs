//! Traffic generators, driven by one controller: TCP streams, paced UDP, latency probes, and requests with
//! answers.
//!
//! ```text
//!  controller ──jobs,    a JSON object a line──▶ agent ──TCP, UDP──▶ agent ◀── controller
//!             ◀──answers, a JSON object a line──
//! ```
//!
//! An *agent* is a process inside a namespace that talks over its standard input and output, or a
//! connection to `convoy speedtest --serve` on another host; the protocol is the same. It runs one job
//! at a time, apart from answering, which runs beside jobs. So a controller opens one agent for the load
//! and one for latency.
//!
//! 1. Send the listening end its half of the job and wait for its port.
//! 2. Send the connecting end its half with that port.
//! 3. Wait for `()`, which starts the counted window, then for the reports.
//!
//! Every job ends by the clock, whatever happens to the network.

mod agent;
mod answerer;
mod controller;
mod probe;
mod protocol;
mod scope;
mod socks;
mod tcp;
mod udp;

pub(crate) use controller::PATIENCE;
pub(crate) use protocol::{Job, Side, Target};
pub(crate) use udp::pace::Pace;

pub use agent::{serve_child, serve_connections};
pub use controller::Agent;
pub use protocol::{
    Direction, Exchange, LatencyReport, RoundTripReport, TcpLoad, TcpReport, UdpLoad, UdpReceived,
    UdpSent,
};
