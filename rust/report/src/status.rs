//! Model of what `convoy status --json` prints: [`STATUS_SCHEMA`] describes it.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{Counters, OuterCounters, Peer, RelayServer};
use serde::{Deserialize, Serialize};

/// JSON Schema of [`Statuses`], as `convoy status --schema` prints it.
pub const STATUS_SCHEMA: &str = include_str!("../schema/status.schema.json");

/// The output of `convoy status --json`: one line. Times are in seconds since 1970-01-01 UTC.
///
/// Later versions may add fields, and values of `state`; what is here keeps its name and meaning. What is not known
/// is null or absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Statuses {
    /// The tunnels that are up, by name.
    pub interfaces: Vec<Status>,
}

/// One tunnel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Status {
    /// The interface.
    pub name: String,
    /// Whether the tunnel is as it should be.
    pub state: Condition,
    /// Its configuration file.
    pub config: Option<PathBuf>,
    /// When it came up.
    pub since: Option<u64>,
    /// When a pause ends.
    pub paused_until: Option<u64>,
    /// The process of `convoy up`.
    pub supervisor_pid: Option<u32>,
    /// The process that carries the packets.
    pub tunnel_pid: Option<u32>,
    /// The version of the program that carries the packets.
    pub version: Option<String>,
    /// In base64.
    pub public_key: Option<String>,
    /// In bytes.
    pub mtu: Option<u32>,
    /// The UDP port; 0 if there is none yet.
    pub listen_port: u16,
    /// The mark of the tunnel's datagrams; 0 for none.
    pub fwmark: u32,
    /// The configured value: `off`, `on` or `persistent`.
    pub kill_switch: Option<String>,
    /// Whether the kernel drops what would leave outside the tunnel.
    pub kill_switch_closed: Option<bool>,
    /// Name servers.
    pub dns: Vec<String>,
    /// The port that the router is asked to forward; null if `PortMap` is off.
    pub port_mapping: Option<PortMappingStatus>,
    /// The port that the provider is asked to forward through the tunnel; null if `PortForward` is absent.
    pub port_forward: Option<PortForwardStatus>,
    /// TURN servers, one entry per address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayServer>,
    /// Engine of the network of a tunnel without root: `namespace`.
    pub engine: Option<String>,
    /// The commands of `convoy exec` in a tunnel without root.
    pub commands: Option<usize>,
    /// The listeners of `convoy up --userspace`.
    pub forwards: Vec<ForwardStatus>,
    /// The gateway of `convoy up --userspace --nat user`.
    pub nat: Option<NatStatus>,
    /// The tunnel through which this one goes; null if there is none.
    pub via: Option<ViaStatus>,
    /// Warnings: whatever is wrong or missing, in words.
    pub warnings: Vec<String>,
    /// Rate of packets in the clear.
    pub rate: Option<Rate>,
    /// In the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// The counters of `convoy stats --json`, since the start of the process that carries the packets.
    pub stats: Option<Counters>,
}

/// The tunnel through which another goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ViaStatus {
    /// Name of its file.
    pub name: String,
    /// Its configuration file; null if it is not known.
    pub config: Option<PathBuf>,
    /// In base64.
    pub public_key: Option<String>,
    /// In the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Its counters, which those of the tunnel inside do not include.
    pub stats: Option<OuterCounters>,
}

/// A UDP port that the router is asked to forward to this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PortMappingStatus {
    /// Address and port that it forwards; null if it forwards none.
    pub external: Option<String>,
    /// The protocol of the grant: `PCP`, `NAT-PMP` or `UPnP`.
    pub protocol: Option<String>,
    /// Reason why there is no mapping, in words; null as well while the router is being asked.
    pub problem: Option<String>,
}

/// A port that the provider's gateway is asked to forward through the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PortForwardStatus {
    /// The gateway's address inside the tunnel.
    pub gateway: String,
    /// The port, of UDP and TCP; null if it forwards none.
    pub port: Option<u16>,
    /// The address at which the internet finds it; null if it is not known.
    pub address: Option<String>,
    /// Reason why there is no port, in words; null as well while the gateway is being asked.
    pub problem: Option<String>,
}

/// A listener that leads into the tunnel, or out of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ForwardStatus {
    /// Its addresses with their ports.
    pub listen: Vec<String>,
    /// Whether it listens inside the tunnel, and connects outside.
    pub is_inside: bool,
    /// `host:port`, `host:port/udp`, `SOCKS5` or `HTTP CONNECT`.
    pub target: String,
    /// Counts of what it has carried and refused.
    #[serde(flatten)]
    pub carried: CarriedStatus,
}

/// Gateway by which peers reach hosts outside the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NatStatus {
    /// Connections.
    pub tcp: CarriedStatus,
    /// Flows of datagrams.
    pub udp: CarriedStatus,
    /// Flows of echo requests.
    pub icmp: CarriedStatus,
    /// DNS queries; null if they are not answered.
    pub dns: Option<CarriedStatus>,
    /// Packets that belong to none of these, by reason.
    pub dropped_packets: BTreeMap<String, u64>,
}

/// Counts of what was carried and refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CarriedStatus {
    /// Connections and flows that have reached their target.
    pub opened: u64,
    /// Connections and flows that have not ended.
    pub open: u64,
    /// Bytes from clients to targets.
    pub bytes_out: u64,
    /// Bytes from targets to clients.
    pub bytes_in: u64,
    /// Datagrams that were discarded: a socket was full, or refused them.
    pub dropped_datagrams: u64,
    /// How many clients were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// How often connections had less of the relay's memory than usual, by bound. No byte is lost.
    pub bounds_met: BTreeMap<String, u64>,
}

/// Whether a tunnel is as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum Condition {
    /// It is up.
    #[default]
    #[serde(rename = "up")]
    Up,
    /// Packets leave outside the tunnel for a time.
    #[serde(rename = "paused")]
    Paused,
    /// Its supervisor has died.
    #[serde(rename = "without supervisor")]
    WithoutSupervisor,
    /// It was started as `convoy IFACE`, by hand or by wg-quick, and has no supervisor.
    #[serde(rename = "daemon")]
    Daemon,
}

/// One peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeerStatus {
    /// The `# friendly_name` above it in the configuration.
    pub name: Option<String>,
    /// Whether packets get through, and why not.
    pub state: PeerState,
    /// Problem in words.
    pub problem: Option<String>,
    /// Rate of datagrams; only with `--rates`.
    pub rate: Option<Rate>,
    /// Report of the tunnel itself.
    #[serde(flatten)]
    pub peer: Peer,
}

/// Whether packets get through to a peer, and why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum PeerState {
    /// There is a session.
    #[serde(rename = "connected")]
    Connected,
    /// A handshake has begun.
    #[serde(rename = "connecting")]
    Connecting,
    /// There is no session, as nobody has sent anything lately. The next packet begins a handshake.
    #[default]
    #[serde(rename = "idle")]
    Idle,
    /// The endpoint does not answer: it is down or elsewhere, a firewall drops the datagrams, or either side has
    /// another public key for the other. A WireGuard server is silent in all these cases.
    #[serde(rename = "no answer")]
    NoAnswer,
    /// The endpoint answers, but not with the right keys.
    #[serde(rename = "not authentic")]
    NotAuthentic,
    /// This host has no route to the endpoint.
    #[serde(rename = "no route")]
    NoRoute,
    /// The endpoint's name has no address.
    #[serde(rename = "name not found")]
    NameNotFound,
    /// The peer has no endpoint: it must call first.
    #[serde(rename = "no endpoint")]
    NoEndpoint,
}

/// Bytes per second, over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Rate {
    /// The length of this time.
    pub seconds: f64,
    /// Received bytes per second.
    pub rx: u64,
    /// Sent bytes per second.
    pub tx: u64,
}

impl Rate {
    /// Divides what was carried by the time; `None` if none has passed.
    #[must_use]
    pub fn of(rx_bytes: u64, tx_bytes: u64, seconds: f64) -> Option<Self> {
        let per_second = |bytes| (bytes as f64 / seconds) as u64;
        (seconds > 0.0).then(|| Self {
            seconds,
            rx: per_second(rx_bytes),
            tx: per_second(tx_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::schema::{compare, schema_of};

    #[test]
    fn the_schema_of_the_status_is_the_committed_one() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = manifest.join("schema/status.schema.json");
        compare(&path, &schema_of::<Statuses>());
    }
}
