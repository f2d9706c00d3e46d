//! The messages between a controller and an agent.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Version of this protocol, announced in [`Hello`]; it changes when a message does.
pub(super) const PROTOCOL: u32 = 4;

/// The first answer of every agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Its [`PROTOCOL`].
    pub(super) protocol: u32,
    /// The program's version, for messages.
    pub(super) version: String,
}

/// One job for an agent. A job that listens first answers the port, a `u16`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// One end of a set of TCP streams.
    Tcp(TcpJob),
    /// One end of a paced UDP flow.
    Udp(UdpJob),
    /// Answer probes and requests over TCP and UDP, on one port, until the agent ends.
    Answer {
        /// Answer before ordinary threads run, so that a round trip is the network's.
        first: bool,
    },
    /// Probe an agent that answers.
    Ping(PingJob),
    /// Send requests to an agent that answers.
    RoundTrips(RoundTripJob),
}

/// One end of `streams` parallel TCP streams. The receiver answers `()` when it begins to count; both
/// end with a [`TcpReport`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TcpJob {
    /// The other end, which listens; none lets this end listen.
    pub to: Option<SocketAddr>,
    /// Whether this end sends; otherwise it receives and counts.
    pub sends: bool,
    /// Number of parallel connections, 1 to 64.
    pub streams: u32,
    /// Seconds after the last connection is open that are not counted.
    pub warmup_s: f64,
    /// Seconds that are counted, by the receiving end.
    pub window_s: f64,
    /// Congestion control that the sending end asks its kernel for, as `bbr`; none takes the default.
    pub congestion_control: Option<String>,
}

/// One end of a UDP flow at a constant rate. The sender answers `()` when it begins, then [`UdpSent`];
/// the receiver answers [`UdpReceived`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UdpJob {
    /// The receiver, to which this end sends; none makes this end the receiver.
    pub to: Option<SocketAddr>,
    /// UDP payload in bytes, 16 to 65,507.
    pub payload: usize,
    /// Packets a second.
    pub rate_pps: f64,
    /// Length of the schedule in seconds.
    pub seconds: f64,
    /// Marks this flow's packets, so that stragglers of an earlier one are not counted.
    pub run: u64,
}

impl UdpJob {
    /// Packets in the whole schedule.
    pub(super) fn packets(&self) -> u64 {
        (self.rate_pps * self.seconds).round() as u64
    }
}

/// Probes of 32 bytes, one each interval; answered by a [`LatencyReport`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PingJob {
    /// The answering agent.
    pub to: SocketAddr,
    /// Milliseconds between probes.
    pub interval_ms: u64,
    /// Length of the schedule in seconds.
    pub seconds: f64,
}

/// Requests of 32 bytes with answers as long, one in flight; answered by a [`RoundTripReport`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundTripJob {
    /// The answering agent.
    pub to: SocketAddr,
    /// How they travel.
    pub exchange: Exchange,
    /// For how many seconds; at most 60.
    pub seconds: f64,
}

/// How a request and its answer travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// All over one TCP connection.
    Tcp,
    /// Each over a TCP connection of its own, which the asking end resets.
    TcpConnect,
    /// A UDP datagram each way.
    Udp,
}

/// TCP payload moved within a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TcpReport {
    /// Payload in bytes.
    pub bytes: u64,
    /// Length of the window as it turned out, in seconds.
    pub seconds: f64,
    /// Congestion control of the sending end's sockets; none from the receiving end.
    pub congestion_control: Option<String>,
}

/// The report of a paced sender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct UdpSent {
    /// Packets handed to the kernel.
    pub packets: u64,
    /// From the first packet to the end of the schedule, in seconds.
    pub seconds: f64,
    /// Whether at least 99 % of the schedule was sent in its time. Where not, the generator was
    /// too slow, and the run says nothing about rates above `packets / seconds`.
    pub held_rate: bool,
}

/// The part of a paced flow that arrived.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct UdpReceived {
    /// Distinct packets.
    pub packets: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets that reached this host and found the receiving socket's buffer full.
    pub socket_drops: u64,
}

/// Round-trip times of a probe.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back.
    pub received: u64,
    /// Median round trip in milliseconds; none where nothing came back.
    pub median_ms: Option<f64>,
    /// 99th percentile in milliseconds.
    pub p99_ms: Option<f64>,
}

/// How long answers took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTripReport {
    /// Requests that were answered.
    pub answered: u64,
    /// UDP requests without an answer within 250 ms.
    pub lost: u64,
    /// Length of the run as it turned out, in seconds.
    pub seconds: f64,
    /// Median round trip in microseconds; none where nothing was answered.
    pub p50_us: Option<f64>,
    /// 99th percentile in microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile in microseconds.
    pub p999_us: Option<f64>,
}
