//! Parts of a gateway that passes peers' flows on as connections and datagrams of this host.
//!
//! 1. A [`Policy`] decides which targets a peer may reach; [`Own`] tells it this host's addresses.

mod own;
mod policy;

pub use own::Own;
pub use policy::Policy;
