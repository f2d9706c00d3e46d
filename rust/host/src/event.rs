//! Events that [`Host::watch`](crate::Host::watch) returns.

use std::net::IpAddr;

/// An event on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another program had removed or changed these; they are back.
    Restored(Vec<String>),
    /// Another program had opened the kill switch; it is closed again.
    KillSwitchRestored,
    /// The interface has a new MTU in bytes, which fits the routes to the endpoints.
    MtuChanged(u32),
    /// Datagrams to an endpoint, or by the default route, leave by another device, gateway or source address.
    UnderlayChanged,
    /// [`Applied::warnings`](crate::Applied::warnings) have changed to these.
    Warnings(Vec<String>),
    /// The addresses of [`Host::own_addresses`](crate::Host::own_addresses) have changed to these.
    OwnAddresses(Vec<IpAddr>),
    /// A pause has ended.
    Resumed,
    /// The interface has left this network namespace; call [`Host::release`](crate::Host::release).
    Moved,
    /// The interface was deleted; call [`Host::undo`](crate::Host::undo).
    Gone,
}
