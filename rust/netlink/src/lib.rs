//! Links, addresses, routes and rules of the kernel, by netlink.

mod address;
mod connection;
mod link;
mod multicast;
pub mod nftables;
mod prefix;
mod route;
mod rule;

pub use connection::Netlink;
pub use link::Link;
pub use multicast::{Multicast, nft_tables, route_messages};
pub use prefix::{InvalidPrefix, Prefix};
pub use route::{MAIN_TABLE, Outside, Path, Route, Via, connected, leads_out_by, table_of};
pub use rule::{Place, Rule, Selector};
