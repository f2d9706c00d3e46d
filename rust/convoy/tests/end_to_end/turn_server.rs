//! The TURN server of the tests, and its only user.

use std::net::{IpAddr, SocketAddr};

use convoy_lab::{Namespace, RelayOptions, RelayServer, RelayTransport, eventually};

use crate::scene::DEADLINE;

pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// Starts a server at `address` in `place`; peers see addresses with the same IP.
pub(crate) fn start_turn(
    place: &Namespace,
    address: SocketAddr,
    transport: RelayTransport,
) -> RelayServer {
    start_turn_of(place, address, None, transport)
}

/// The same, with a further address of the other family.
pub(crate) fn start_turn_of(
    place: &Namespace,
    address: SocketAddr,
    other: Option<IpAddr>,
    transport: RelayTransport,
) -> RelayServer {
    let options = RelayOptions {
        transport,
        user: (USER.to_owned(), PASSWORD.to_owned()),
        alias: None,
        other,
    };
    // The kernel may still be about to free the address of a former one.
    let start = || RelayServer::start(place, address, &options).ok();
    eventually(DEADLINE, start).expect("the address is free")
}
