//! Whether the peers answer: real handshakes by a tunnel in memory, from a UDP port of its own.
//!
//! Its initiations carry the time of the clock that the daemon uses, so a tunnel that comes up afterwards is later
//! and no replay. Only for tunnels that are not up: the peers send to whoever has shaken hands last.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use anyhow::Context;
use convoy_config::{Config, Peer, encode_key};
use convoy_proto::{
    config::{DeviceUpdate, PeerUpdate, PrivateKey, PublicKey},
    noise::Identity,
};
use convoy_report::{PeerState, PeerStatus, Status};
use convoy_tun::{Offload, memory};
use convoy_tunnel::{Options, Tunnel};
use tokio::{
    runtime::Runtime,
    time::{Instant, timeout_at},
};

use super::{finding::Finding, subject::name_of};

const ID: &str = "handshake";

/// How long the peers have to answer at one address each, and when an initiation is repeated, as one may get lost.
const PATIENCE: Duration = Duration::from_secs(5);
const REPETITION: Duration = Duration::from_secs(2);

/// The most addresses of a peer that are tried.
const ADDRESSES: usize = 3;

/// A peer, and its addresses in order of preference.
pub(super) struct Callee<'a> {
    pub(super) peer: &'a Peer,
    pub(super) addresses: Vec<SocketAddr>,
}

/// Shakes hands with all of them at once; returns the addresses at which peers answered.
pub(super) fn shake_hands(
    runtime: &Runtime,
    private_key: &PrivateKey,
    callees: &[Callee<'_>],
    mark: Option<u32>,
) -> anyhow::Result<Vec<(PublicKey, SocketAddr)>> {
    let (device, _kernel) = memory::pair(Offload::default(), 1_420)?;
    let tunnel = Tunnel::start(device, Options::default())?;
    let outcome = call(runtime, &tunnel, private_key, callees, mark);
    tunnel.stop();
    runtime.block_on(tunnel.wait());
    outcome
}

fn call(
    runtime: &Runtime,
    tunnel: &Tunnel,
    private_key: &PrivateKey,
    callees: &[Callee<'_>],
    mark: Option<u32>,
) -> anyhow::Result<Vec<(PublicKey, SocketAddr)>> {
    let mut answered = Vec::new();
    let mut silent: HashSet<_> = callees.iter().map(key).collect();
    for round in 0..ADDRESSES {
        let calls = callees
            .iter()
            .filter(|callee| silent.contains(&key(callee)));
        let calls = calls.filter_map(|callee| Some((callee.peer, *callee.addresses.get(round)?)));
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            break;
        }
        tunnel
            .apply(DeviceUpdate {
                private_key: Some(Some(private_key.clone())),
                fwmark: mark,
                peers: calls
                    .iter()
                    .map(|(peer, address)| update(peer, *address))
                    .collect(),
                ..DeviceUpdate::default()
            })
            .context("cannot open sockets for handshakes")?;
        let awaited = calls
            .iter()
            .map(|(peer, _)| peer.public_key.value)
            .collect();
        let found = runtime.block_on(answers(tunnel, awaited))?;
        silent.retain(|key| !found.contains(key));
        let found = calls
            .iter()
            .filter(|(peer, _)| found.contains(&peer.public_key.value));
        answered.extend(found.map(|(peer, address)| (peer.public_key.value, *address)));
    }
    Ok(answered)
}

fn update(peer: &Peer, address: SocketAddr) -> PeerUpdate {
    PeerUpdate {
        preshared_key: Some(peer.preshared_key.as_ref().map(|key| key.value.clone())),
        endpoint: Some(address),
        ..PeerUpdate::new(peer.public_key.value)
    }
}

/// Begins handshakes, and returns the peers that have answered when all have, or when their time is over.
async fn answers(
    tunnel: &Tunnel,
    mut silent: HashSet<PublicKey>,
) -> anyhow::Result<HashSet<PublicKey>> {
    let keys = |keys: &HashSet<PublicKey>| keys.iter().copied().collect::<Vec<_>>();
    tunnel.follow(&keys(&silent)).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut answered = HashSet::new();
    while !silent.is_empty() && Instant::now() < deadline {
        tunnel.handshake_now(&keys(&silent)).await?;
        let repetition = deadline.min(Instant::now() + REPETITION);
        while !silent.is_empty()
            && let Ok(event) = timeout_at(repetition, tunnel.next_handshake_event()).await
        {
            if event.is_answered() && silent.remove(&event.peer) {
                answered.insert(event.peer);
            }
        }
    }
    Ok(answered)
}

fn key(callee: &Callee<'_>) -> PublicKey {
    callee.peer.public_key.value
}

/// Judges the answers.
pub(super) fn judge(
    private_key: &PrivateKey,
    callees: &[Callee<'_>],
    answered: &[(PublicKey, SocketAddr)],
) -> Vec<Finding> {
    let own = Identity::new(private_key).public_key();
    let own = encode_key(&own.0);
    let judge = |callee: &Callee<'_>| {
        let name = name_of(callee.peer);
        let found = answered.iter().find(|(peer, _)| *peer == key(callee));
        let finding = match (found, callee.addresses.as_slice()) {
            (Some((_, address)), _) => Finding::ok(ID, format!("{address} answers handshakes.")),
            // Its name has no address, which is a finding of its own.
            (None, []) => return None,
            (None, addresses) => {
                let tried = addresses.iter().take(ADDRESSES).map(SocketAddr::to_string);
                let tried: Vec<_> = tried.collect();
                Finding::error(
                    ID,
                    format!("No answer to handshakes from {}.", tried.join(", ")),
                    format!(
                        "See that the server runs, that no firewall drops UDP on the way, that the peer's public key \
                         is right, and that the server knows this one: {}.",
                        own.as_str()
                    ),
                )
            }
        };
        Some(finding.about(&name))
    };
    callees.iter().filter_map(judge).collect()
}

/// Peers that must call first.
pub(super) fn judge_without_endpoint(config: &Config) -> Vec<Finding> {
    let peers = config.peers.iter().filter(|peer| peer.endpoints.is_empty());
    let remark = |peer| {
        let what = "It has no endpoint: it must call first.";
        Finding::remark(ID, what).about(&name_of(peer))
    };
    peers.map(remark).collect()
}

/// Judges the handshakes of a tunnel that is up, by what it says itself.
pub(super) fn judge_status(status: &Status) -> Vec<Finding> {
    let outer = status.via.as_ref();
    let route = match outer {
        Some(via) => format!(
            "Add its address to `AllowedIPs` of {via}, or take another endpoint; then `convoy reload {}`.",
            status.name,
            via = via.name
        ),
        None => "Connect to a network.".to_owned(),
    };
    let of_this = status.peers.iter().map(|peer| judge_peer(peer, &route));
    let of_outer = outer.iter().flat_map(|via| &via.peers);
    let of_outer = of_outer.map(|peer| judge_peer(peer, "Connect to a network."));
    of_this.chain(of_outer).collect()
}

/// `route`: the fix if nothing leads to its endpoint.
fn judge_peer(peer: &PeerStatus, route: &str) -> Finding {
    let name = peer
        .name
        .clone()
        .unwrap_or_else(|| peer.peer.public_key.clone());
    let problem = peer.problem.clone();
    let fix = "See `convoy status`, and that the server runs and knows this host's public key.";
    let finding = match peer.state {
        PeerState::Connected => Finding::ok(ID, "There is a session."),
        PeerState::Idle => Finding::ok(
            ID,
            "Nothing was sent lately; the next packet begins a handshake.",
        ),
        PeerState::Connecting => {
            Finding::note(ID, "A handshake has begun.", "Ask again in five seconds.")
        }
        PeerState::NoEndpoint => Finding::remark(ID, "It has no endpoint: it must call first."),
        PeerState::NoAnswer => Finding::error(
            ID,
            problem.unwrap_or("No answer to handshakes.".to_owned()),
            fix,
        ),
        PeerState::NotAuthentic => Finding::error(
            ID,
            problem.unwrap_or("Its answers are not authentic.".to_owned()),
            fix,
        ),
        PeerState::NoRoute => Finding::error(
            ID,
            problem.unwrap_or("No route leads to its endpoint.".to_owned()),
            route,
        ),
        PeerState::NameNotFound => Finding::error(
            ID,
            problem.unwrap_or("Its endpoint's name has no address.".to_owned()),
            "Check its spelling, and the name servers of the network outside the tunnel.",
        ),
    };
    finding.about(&name)
}

#[cfg(test)]
mod tests;
