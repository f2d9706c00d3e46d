//! Parses arbitrary lines: the parser accepts what the specification allows, and an accepted update
//! survives being listed and parsed again.

pub(crate) mod book;
pub(crate) mod generate;

use std::time::Duration;

use convoy_fuzz::{Result, Unstructured};
use convoy_proto::config::{PeerSnapshot, Snapshot};

use super::*;
use crate::write::listing;
use book::Request;

#[test]
fn fuzz_requests() {
    convoy_fuzz::run("requests", 4000, 1500, requests);
}

fn requests(input: &mut Unstructured<'_>) -> Result<()> {
    let mut parser = SetParser::new();
    let mut request = Request::new();
    for _ in 0..40 {
        let Ok(line) = generate::line(input, request.has_peers()) else {
            break;
        };
        let taken = parser.line(&line);
        let shown = String::from_utf8_lossy(&line);
        assert_eq!(taken.is_ok(), request.take(&line), "{shown:?}: {taken:?}");
    }
    // In the daemon a refused line fails the request; here it must only change nothing.
    let update = parser.finish();
    let text = request.canonical();
    assert_eq!(text_of(&update), text);
    assert_eq!(text_of(&parsed(&text)), text);
    let snapshot = snapshot_of(&update);
    let listed = parsed(&settable(&listing(&snapshot)));
    assert_eq!(facts(&snapshot_of(&listed)), facts(&snapshot));
    Ok(())
}

fn parsed(text: &str) -> DeviceUpdate {
    let mut parser = SetParser::new();
    for line in text.lines() {
        parser
            .line(line.as_bytes())
            .expect("canonical lines are valid");
    }
    parser.finish()
}

/// The request for `update`, in the form of [`Request::canonical`].
pub(crate) fn text_of(update: &DeviceUpdate) -> String {
    let zero = [0; 32];
    let mut lines = Vec::new();
    if let Some(key) = &update.private_key {
        let key = key.as_ref().map_or(zero, |key| key.0);
        lines.push(format!("private_key={}", hex::encode(key)));
    }
    lines.extend(update.listen_port.map(|port| format!("listen_port={port}")));
    lines.extend(update.fwmark.map(|mark| format!("fwmark={mark}")));
    lines.extend(
        update
            .replace_peers
            .then(|| "replace_peers=true".to_owned()),
    );
    for peer in &update.peers {
        lines.push(format!("public_key={}", hex::encode(peer.public_key.0)));
        lines.extend(peer.remove.then(|| "remove=true".to_owned()));
        lines.extend(peer.update_only.then(|| "update_only=true".to_owned()));
        if let Some(key) = &peer.preshared_key {
            let key = key.as_ref().map_or(zero, |key| key.0);
            lines.push(format!("preshared_key={}", hex::encode(key)));
        }
        lines.extend(peer.endpoint.map(|endpoint| format!("endpoint={endpoint}")));
        let keepalive = peer.persistent_keepalive;
        lines.extend(keepalive.map(|s| format!("persistent_keepalive_interval={s}")));
        lines.extend(
            peer.replace_allowed_ips
                .then(|| "replace_allowed_ips=true".to_owned()),
        );
        for change in &peer.allowed_ips {
            let network = change.network;
            let minus = if change.remove { "-" } else { "" };
            lines.push(format!("allowed_ip={minus}{network}"));
        }
    }
    lines.join("\n")
}

/// An empty device after the update, with each peer's section taken by itself.
fn snapshot_of(update: &DeviceUpdate) -> Snapshot {
    let peers = update.peers.iter().map(|peer| PeerSnapshot {
        preshared_key: peer.preshared_key.clone().flatten(),
        endpoint: peer.endpoint,
        persistent_keepalive: Duration::from_secs(peer.persistent_keepalive.unwrap_or(0).into()),
        rx_bytes: u64::MAX,
        tx_bytes: u64::MAX,
        allowed_ips: peer
            .allowed_ips
            .iter()
            .map(|change| change.network)
            .collect(),
        ..PeerSnapshot::new(peer.public_key)
    });
    Snapshot {
        private_key: update.private_key.clone().flatten(),
        listen_port: update.listen_port.unwrap_or(0),
        fwmark: update.fwmark.unwrap_or(0),
        peers: peers.collect(),
        ..Snapshot::default()
    }
}

/// Removes the read-only lines from a listing.
fn settable(listing: &str) -> String {
    let read_only = [
        "last_handshake_time_sec=",
        "last_handshake_time_nsec=",
        "tx_bytes=",
        "rx_bytes=",
    ];
    let is_settable = |line: &&str| !read_only.iter().any(|key| line.starts_with(key));
    let lines: Vec<_> = listing.lines().filter(is_settable).collect();
    lines.join("\n")
}

/// Everything that a listing holds, including keys, whose `Debug` hides them.
fn facts(snapshot: &Snapshot) -> String {
    let device = snapshot.private_key.as_ref().map(|key| key.0);
    let peers = snapshot.peers.iter().map(|peer| {
        let preshared = peer.preshared_key.as_ref().map(|key| key.0);
        format!(
            "{:?} {preshared:?} {:?} {:?} {:?}",
            peer.public_key.0, peer.endpoint, peer.persistent_keepalive, peer.allowed_ips
        )
    });
    let ports = (snapshot.listen_port, snapshot.fwmark);
    format!("{device:?} {ports:?} {:?}", peers.collect::<Vec<_>>())
}
