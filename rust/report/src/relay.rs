//! TURN servers.

use serde::{Deserialize, Serialize};

/// A TURN server at one of its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RelayServer {
    /// Name or address, as configured.
    pub host: String,
    /// Address and port.
    pub server: String,
    /// Transport to it: `udp`, `tcp` or `tls`.
    pub transport: String,
    /// State in one word: `idle` (no peer needs it), `connecting`, `allocating`, `ready` or `failed`.
    pub state: String,
    /// Address and port that it has given, which peers see.
    pub relayed: Option<String>,
    /// Second such address, of IPv6, if it has given one of each family.
    pub relayed_ipv6: Option<String>,
    /// Reason why it does not work, in words.
    pub problem: Option<String>,
    /// Number of peers whose data it carries.
    pub peers: u64,
}
