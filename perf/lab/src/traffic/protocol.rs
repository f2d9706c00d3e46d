//! The messages between a controller and an agent.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Version of this protocol, announced in [`Hello`]; it changes with the messages.
pub(super) const PROTOCOL: u32 = 6;

/// The first answer of every agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// Version of the program, for messages.
    pub(super) version: String,
}

/// One job for an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Job {
    /// One end of a TCP load: the near one connects, the far one listens. The far one first answers its port.
    /// The receiver answers `()` when it begins to count. Both end with a [`TcpReport`].
    Tcp {
        side: Side,
        load: TcpLoad,
        /// Congestion control of the sender's sockets, for example `bbr`; `None` for the default.
        congestion_control: Option<String>,
    },
    /// One end of a UDP load. The near one sends: it answers `()` when it begins, then [`UdpSent`]. The
    /// far one receives: it answers its port, then [`UdpReceived`].
    Udp {
        side: Side,
        load: UdpLoad,
        /// Marks this flow's packets, so that stragglers of an earlier flow do not count.
        run: u64,
    },
    /// Answer probes and requests over TCP and UDP until the agent ends, at `port` or if that is 0, at any. The answer
    /// is the port. `first`: take precedence over ordinary threads, so that a round trip measures the network.
    Answer { first: bool, port: u16 },
    /// Probe an agent that answers. The answer is a [`LatencyReport`].
    Ping { to: SocketAddr, duration: Duration },
    /// Send requests to an agent that answers, for at most a minute. The answer is a [`RoundTripReport`].
    RoundTrips {
        to: Target,
        exchange: Exchange,
        duration: Duration,
    },
    /// Open up to this many TCP connections to an agent that answers, and keep them until the next such job closes them.
    /// The answer is how many came up, each with a request and its answer.
    Hold { to: SocketAddr, flows: u32 },
}

/// An end of a load.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    Near(Target),
    /// Listens at this port; 0 for any.
    Far {
        port: u16,
    },
}

/// Where the near end connects.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) to: SocketAddr,
    /// A SOCKS5 proxy on the way; for TCP only.
    pub(crate) proxy: Option<SocketAddr>,
}

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// From the near end to the far one.
    Up,
    /// From the far end to the near one.
    Down,
}

/// A TCP load for a limited time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TcpLoad {
    /// The direction of the data.
    pub direction: Direction,
    /// Parallel connections, 1 to 64.
    pub streams: u32,
    /// Warm-up, which does not count.
    pub warmup: Duration,
    /// Time that counts.
    pub window: Duration,
}

/// UDP packets from the near end to the far one, at a constant rate.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct UdpLoad {
    /// Bytes of UDP payload, 16 to 65,507.
    pub payload: usize,
    /// Packets per second.
    pub rate_pps: f64,
    /// Length of the schedule.
    pub duration: Duration,
}

impl UdpLoad {
    /// Number of packets in the whole schedule.
    pub(super) fn packets(&self) -> u64 {
        (self.rate_pps * self.duration.as_secs_f64()).round() as u64
    }
}

/// The transport of a request of 32 bytes and its answer; one is in flight at a time, if
/// nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// All over one TCP connection.
    Tcp,
    /// Each over its own TCP connection, which the client resets.
    TcpConnect {
        /// Connections at the same time, 1 to 64.
        at_once: u32,
    },
    /// A UDP datagram each way.
    Udp,
}

/// TCP payload transferred within a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TcpReport {
    /// Payload in bytes.
    pub bytes: u64,
    /// Actual length of the window in seconds.
    pub seconds: f64,
    /// Congestion control of the sender's sockets; `None` from the receiver.
    pub congestion_control: Option<String>,
}

/// The report of a paced sender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct UdpSent {
    /// Packets handed to the kernel.
    pub packets: u64,
    /// From the first packet to the end of the schedule, in seconds.
    pub seconds: f64,
    /// Whether at least 99 % of the schedule was sent in time. If not, the generator was too slow, and the
    /// run says nothing about rates above `packets / seconds`.
    pub held_rate: bool,
}

/// The part of a paced flow that arrived.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct UdpReceived {
    /// Distinct packets.
    pub packets: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets that reached this host but found the receiving socket's buffer full.
    pub socket_drops: u64,
}

/// Round-trip times of probes of 32 bytes, one every 10 ms.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back.
    pub received: u64,
    /// Median round trip in milliseconds; `None` if no probe came back.
    pub median_ms: Option<f64>,
    /// 99th percentile in milliseconds.
    pub p99_ms: Option<f64>,
}

/// Times to answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTripReport {
    /// Requests that were answered.
    pub answered: u64,
    /// UDP requests without an answer within 250 ms.
    pub lost: u64,
    /// Actual length of the run in seconds.
    pub seconds: f64,
    /// Median round trip in microseconds; `None` without answers.
    pub p50_us: Option<f64>,
    /// 99th percentile in microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile in microseconds.
    pub p999_us: Option<f64>,
}
