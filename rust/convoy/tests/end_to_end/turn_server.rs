//! The TURN and STUN servers of the tests, and their only user.

use std::net::{IpAddr, SocketAddr};

use convoy_lab::{Namespace, eventually};
use convoy_turn_server::{RelayOptions, RelayServer, RelayTransport};

use crate::scene::DEADLINE;

pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// Starts a TURN server at `address` in `place`; peers see addresses with the same IP.
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
    let start = || RelayServer::start(address, &options).ok();
    eventually(DEADLINE, || place.run(start).unwrap()).expect("the address is free")
}

/// Starts a STUN server at `address` in `place`.
pub(crate) fn start_stun(place: &Namespace, address: SocketAddr) -> RelayServer {
    start_turn(place, address, RelayTransport::Udp)
}
