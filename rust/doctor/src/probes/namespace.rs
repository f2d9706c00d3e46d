//! A network namespace for the trials.

use std::io;

use convoy_netlink::{LinkChange, Netlink};
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
};

/// Moves this process, which must have one thread only, into a new network namespace: as root, or else in a user
/// namespace, where it may do the same. Returns whether it could.
pub(super) fn enter() -> bool {
    let network = CloneFlags::CLONE_NEWNET;
    unshare(network).is_ok() || unshare(CloneFlags::CLONE_NEWUSER | network).is_ok()
}

/// Brings an interface up.
pub(super) async fn bring_up(name: &str) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let index = if_nametoindex(name)?;
    Ok(netlink.change_link(index, LinkChange::UP).await?)
}
