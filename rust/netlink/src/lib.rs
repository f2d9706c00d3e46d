//! The kernel's links, addresses, routes and rules, and changes of them, by netlink.
//!
//! Each object has one type, which is parsed in one place and, where Convoy makes such objects, written there, too.
//!
//! - [`Netlink`] asks and changes; a task of the caller's tokio runtime serves it until it is dropped.
//! - [`Notices`] is a subscription to changes, in other network namespaces, too; nothing polls.
//! - [`nftables`] has what nft(8) cannot do: own tables, and hear of their changes.
//!
//! Anyone above may call it: the host's changes, the daemon, doctor, gateways and namespaces. It decides nothing: which
//! routes and rules there should be, and where, is for its callers. It never opens a file, starts a program or changes
//! namespaces. On the data path, `convoy-gso` has its own look-ups of routes:
//! they neither wait nor need a runtime.

mod address;
mod connection;
mod error;
mod gateway;
mod link;
mod message;
mod multicast;
mod namespace;
pub mod nftables;
mod notices;
mod own_address;
mod route;
mod rule;

pub use address::Address;
pub use connection::Netlink;
pub use error::NetlinkError;
pub use link::{Link, LinkChange};
pub use notices::{Notice, Notices, Topic};
pub use own_address::OwnAddress;
pub use route::{LOCAL_TABLE, MAIN_TABLE, NextHop, PathMtu, Route};
pub use rtnetlink::packet_route::route::{RouteProtocol, RouteScope, RouteType};
pub use rule::Rule;
