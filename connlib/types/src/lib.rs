//! Values that several crates share, each defined once: keys, prefixes, names of interfaces, updates of a
//! device, addresses of peers, UDP datagrams, counters of the data path, token buckets, and which characters
//! control a terminal.
//!
//! Any crate may use it, from the sockets to the command line; it lets each name the same noun without depending on
//! another's work. [`PrivateKey`] and [`PresharedKey`] are wiped when they are dropped, and no type here prints a
//! secret. [`Prefix`] and [`InterfaceName`] cannot be made from what is none.
//!
//! It never opens a file or socket, reads a clock, computes with keys or knows a protocol; it depends on no crate of
//! the workspace.

mod candidate;
pub mod counters;
mod datagram;
mod direct;
mod family;
mod interface_name;
mod internet;
mod keys;
mod prefix;
mod relay;
mod switch;
mod terminal;
mod token_bucket;
mod translated;
mod update;

pub use candidate::{Candidate, CandidateKind};
pub use datagram::{Arrival, Datagram, Destination, MAX_UDP_PAYLOAD};
pub use direct::{DirectPath, DirectPeer, DirectStatus, Directs, MAX_DIRECT_PEERS, WhyNotDirect};
pub use family::Family;
pub use interface_name::{InterfaceName, NameError};
pub use internet::{has_internet, holes_in_internet};
pub use keys::{PresharedKey, PrivateKey, PublicKey};
pub use prefix::{InvalidPrefix, Prefix};
pub use relay::{
    Authorities, MAX_RELAYS, Password, Relay, RelayAddress, RelayState, RelayStatus, RelayTransport,
};
pub use switch::Switch;
pub use terminal::controls_terminal;
pub use token_bucket::{Rate, TokenBucket};
pub use translated::{Translated, is_cloud_service};
pub use update::{AllowedIpUpdate, DeviceUpdate, PeerUpdate};
