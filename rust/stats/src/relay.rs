//! TURN servers in `convoy stats` and `convoy status`.

use std::net::SocketAddr;

use convoy_proto::config::{RelayState, RelayStatus};
use convoy_report::{Peer, RelayServer};

/// The report of one.
pub(super) fn server(status: &RelayStatus) -> RelayServer {
    let addresses = match &status.state {
        RelayState::Ready(addresses) => &addresses[..],
        _ => &[],
    };
    // IPv6 comes first.
    let mut addresses = addresses.iter().rev().map(SocketAddr::to_string);
    RelayServer {
        host: status.host.clone(),
        server: status.server.to_string(),
        transport: status.transport.name().to_owned(),
        state: status.state.name().to_owned(),
        relayed: addresses.next(),
        relayed_ipv6: addresses.next(),
        problem: match &status.state {
            RelayState::Failed(why) => Some(why.clone()),
            _ => None,
        },
        peers: status.carries as u64,
    }
}

/// Words the state of one, behind `relay: `.
pub fn words(relay: &RelayServer) -> String {
    let RelayServer {
        server, transport, ..
    } = relay;
    let state = match (relay.state.as_str(), &relay.relayed, &relay.problem) {
        ("idle", ..) => "not needed".to_owned(),
        ("ready", Some(relayed), _) => {
            let other = relay.relayed_ipv6.as_ref();
            let other = other.map(|it| format!(" and {it}")).unwrap_or_default();
            format!("ready, peers see {relayed}{other}")
        }
        (_, _, Some(problem)) => format!("failed: {problem}"),
        (state, ..) => state.to_owned(),
    };
    format!("{server} ({transport}): {state}")
}

/// Words the way that data to a peer takes, behind `path: `; `None` if it is the direct one.
pub fn path(peer: &Peer) -> Option<String> {
    let server = peer.relay.as_ref()?;
    let transport = peer.relay_transport.as_ref();
    let transport = transport.map(|it| format!(" ({it})"));
    Some(format!("relay {server}{}", transport.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::RelayTransport;

    use super::*;

    #[test]
    fn the_state_of_a_server_and_the_path_of_a_peer_are_told_in_words() {
        let shown = |state| {
            let status = RelayStatus {
                host: "turn.example.org".to_owned(),
                server: "192.0.2.9:3478".parse().unwrap(),
                transport: RelayTransport::Udp,
                state,
                carries: 1,
            };
            words(&server(&status))
        };
        let head = "192.0.2.9:3478 (udp): ";
        let ready = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|it| it.parse().unwrap());
            RelayState::Ready(addresses.collect())
        };
        let failed = RelayState::Failed("the relay does not answer".to_owned());
        assert_eq!(shown(RelayState::Idle), format!("{head}not needed"));
        assert_eq!(shown(RelayState::Allocating), format!("{head}allocating"));
        for (addresses, seen) in [
            (&["198.51.100.7:50000"][..], "198.51.100.7:50000"),
            (&["[2001:db8::7]:50001"], "[2001:db8::7]:50001"),
            (
                &["[2001:db8::7]:50001", "198.51.100.7:50000"],
                "198.51.100.7:50000 and [2001:db8::7]:50001",
            ),
        ] {
            let expected = format!("{head}ready, peers see {seen}");
            assert_eq!(shown(ready(addresses)), expected);
        }
        assert_eq!(
            shown(failed),
            format!("{head}failed: the relay does not answer")
        );
        let mut peer = Peer::default();
        assert_eq!(path(&peer), None);
        peer.relay = Some("192.0.2.9:3478".to_owned());
        assert_eq!(path(&peer).as_deref(), Some("relay 192.0.2.9:3478"));
        peer.relay_transport = Some("tls".to_owned());
        let path = path(&peer);
        assert_eq!(path.as_deref(), Some("relay 192.0.2.9:3478 (tls)"));
    }
}
