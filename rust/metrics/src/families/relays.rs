//! The series of TURN servers; none if there is no such server.

use std::fmt;

use convoy_report::RelayServer;

use super::out::{Labels, Out};

/// Writes them for these servers.
pub(super) fn write(out: &mut Out<'_>, relays: &[RelayServer]) -> fmt::Result {
    if relays.is_empty() {
        return Ok(());
    }
    let ready = relays
        .iter()
        .map(|it| (labels_of(it), u64::from(it.state == "ready")));
    let help = "Whether a TURN server has given an address";
    out.gauges("relay_ready", help, None, ready)?;
    let peers = relays.iter().map(|it| (labels_of(it), it.peers));
    let help = "Peers whose data a TURN server carries";
    out.gauges("relay_peers", help, None, peers)
}

fn labels_of(relay: &RelayServer) -> Labels<'_, 2> {
    [
        ("server", relay.server.as_str()),
        ("transport", relay.transport.as_str()),
    ]
}
