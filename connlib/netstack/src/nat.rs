//! Parts of a gateway that passes peers' flows on as connections and datagrams of this host.
//!
//! 1. A [`Policy`] decides which targets a peer may reach; [`Own`] tells it this host's addresses.
//! 2. [`Shares`] divide what the gateway can hold among the peers.
//! 3. [`Dns`] answers their DNS queries.

mod dns;
mod own;
mod policy;
mod shares;

pub use dns::{Dns, Over, Upstream};
pub use own::Own;
pub use policy::Policy;
pub use shares::{Limits, Share, Shares};
