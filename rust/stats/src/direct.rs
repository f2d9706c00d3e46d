//! Peers that are met through a hub: their part of the report, and in words.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_proto::config::{CandidateKind, DirectPath, DirectStatus, PublicKey};
use convoy_report::{DataPath, DirectPeer};

use crate::figures::binary;

/// Returns the peers that are met through this one.
pub(super) fn peers_of(hub: PublicKey, all: &[DirectStatus]) -> Vec<DirectPeer> {
    let theirs = all.iter().filter(|direct| direct.hub == hub);
    theirs.map(peer).collect()
}

/// Words the path to a peer in one line.
pub fn line(direct: &DirectPeer) -> String {
    let path = match (direct.path, &direct.remote) {
        (DataPath::Direct, Some(remote)) => {
            let kind = direct.kind.as_deref().map_or("", origin);
            format!("at {remote}{kind}{}", round_trip(direct))
        }
        (DataPath::Relay, Some(remote)) => {
            format!("by a relay, at {remote}{}", round_trip(direct))
        }
        _ => format!("by the hub: {}", reason(direct.why.as_deref())),
    };
    let by_hub = direct.hub_round_trip_us.map(milliseconds);
    let by_hub = by_hub.map(|time| format!("; {time} by the hub"));
    let (received, sent) = (binary(direct.rx_bytes), binary(direct.tx_bytes));
    format!(
        "direct {}: {path}{}; {received} received directly, {sent} sent",
        direct.address,
        by_hub.unwrap_or_default()
    )
}

fn round_trip(direct: &DirectPeer) -> String {
    let time = direct.round_trip_us.map(milliseconds);
    time.map(|time| format!(", {time}")).unwrap_or_default()
}

fn data_path(path: &DirectPath) -> DataPath {
    match path.kind {
        CandidateKind::Relayed => DataPath::Relay,
        _ => DataPath::Direct,
    }
}

fn peer(direct: &DirectStatus) -> DirectPeer {
    let path = direct.path.as_ref();
    let micros = |time: Duration| time.as_micros() as u64;
    DirectPeer {
        public_key: BASE64_STANDARD.encode(direct.public_key.0),
        address: direct.address.to_string(),
        path: path.map_or(DataPath::Hub, data_path),
        remote: path.ok().map(|path| path.remote.to_string()),
        kind: path.ok().map(|path| path.kind.name().to_owned()),
        round_trip_us: path.ok().and_then(|path| path.round_trip).map(micros),
        why: path.err().map(|why| why.name().to_owned()),
        hub_round_trip_us: direct.hub_round_trip.map(micros),
        handshake_age: direct.last_handshake.map(|age| age.as_secs()),
        rx_bytes: direct.rx_bytes,
        tx_bytes: direct.tx_bytes,
        packets_by_hub: direct.packets_by_hub,
        probes_sent: direct.probes_sent,
        probes_answered: direct.probes_answered,
    }
}

fn origin(kind: &str) -> &'static str {
    match kind {
        "host" => " (its own address)",
        "mapped" => " (its router's, by port mapping)",
        "reflexive" => " (its router's, as a STUN server saw it)",
        "learnt" => " (heard from there)",
        _ => "",
    }
}

/// Words the reason why there is no direct path.
pub fn reason(why: Option<&str>) -> &'static str {
    match why {
        Some("idle") => "nothing was sent to it lately",
        Some("meeting") => "looking for a direct path",
        Some("no_answer") => {
            "it does not answer: it is off, runs stock WireGuard, or its Convoy does not know of this one"
        }
        Some("no_candidates") => "it has told none of its addresses",
        Some("unreachable") => "none of its addresses answers",
        Some("slower_than_hub") => "it answers by a relay alone, and the hub is faster",
        Some("unanswered") => "the direct path has gone silent",
        Some("one_way") => "it does not hear this side on the direct path",
        Some("relay_lost") => "the relay has ended the path",
        Some("address_vanished") => "this machine has lost the address of the direct path",
        _ => "no direct path is known",
    }
}

/// Writes a round trip with one decimal.
pub fn milliseconds(microseconds: u64) -> String {
    format!("{:.1} ms", microseconds as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::WhyNotDirect;

    use super::*;

    #[test]
    fn a_direct_path_is_told_with_its_address_and_round_trips() {
        let status = status(Ok(DirectPath {
            remote: "192.0.2.7:51820".parse().unwrap(),
            kind: CandidateKind::Reflexive,
            round_trip: Some(Duration::from_micros(12_345)),
        }));
        let peers = peers_of(status.hub, std::slice::from_ref(&status));
        let expected = "direct 10.8.0.3: at 192.0.2.7:51820 (its router's, as a STUN server saw it), 12.3 ms; 48.0 ms \
                        by the hub; 2.00 KiB received directly, 7 B sent";
        assert_eq!(line(&peers[0]), expected);
        assert_eq!(peers[0].kind.as_deref(), Some("reflexive"));
        assert_eq!((peers[0].path, &peers[0].why), (DataPath::Direct, &None));
        assert_eq!(peers_of(status.public_key, &[status]), []);
    }

    #[test]
    fn a_relayed_path_is_no_direct_one() {
        let status = status(Ok(DirectPath {
            remote: "192.0.2.7:51820".parse().unwrap(),
            kind: CandidateKind::Relayed,
            round_trip: Some(Duration::from_micros(52_345)),
        }));
        let peer = peer(&status);
        assert_eq!(peer.path, DataPath::Relay);
        let expected =
            "direct 10.8.0.3: by a relay, at 192.0.2.7:51820, 52.3 ms; 48.0 ms by the hub; ";
        assert!(line(&peer).starts_with(expected), "{}", line(&peer));
    }

    #[test]
    fn every_reason_for_none_is_told_in_words() {
        use WhyNotDirect::{
            AddressVanished, Idle, Meeting, NoAnswer, NoCandidates, OneWay, RelayLost,
            SlowerThanHub, Unanswered, Unreachable,
        };
        let all = [
            Idle,
            Meeting,
            NoAnswer,
            NoCandidates,
            Unreachable,
            SlowerThanHub,
            Unanswered,
            OneWay,
            AddressVanished,
            RelayLost,
        ];
        let lines = all.map(|why| line(&peer(&status(Err(why)))));
        for (why, line) in all.iter().zip(&lines) {
            assert!(line.starts_with("direct 10.8.0.3: by the hub: "), "{line}");
            assert!(!line.contains("no direct path is known"), "{why:?}: {line}");
        }
        let distinct: std::collections::BTreeSet<_> = lines.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    fn status(path: Result<DirectPath, WhyNotDirect>) -> DirectStatus {
        DirectStatus {
            public_key: PublicKey([3; 32]),
            address: "10.8.0.3".parse().unwrap(),
            hub: PublicKey([1; 32]),
            path,
            hub_round_trip: Some(Duration::from_millis(48)),
            last_handshake: None,
            rx_bytes: 2048,
            tx_bytes: 7,
            packets_by_hub: 1,
            probes_sent: 3,
            probes_answered: 3,
        }
    }
}
