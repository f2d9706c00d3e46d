//! A tunnel's status from its own report, and what its configuration and the host add.

use std::{borrow::Cow, collections::HashMap, net::SocketAddr, path::PathBuf};

use convoy_config::{Config, encode_key};
use convoy_proto::config::PublicKey;
use convoy_report::{Counters, Peer, PeerState, PeerStatus, Rate, Report, Status, ViaStatus};

use crate::{inside::Inside, route};

/// The most peers whose routes are looked up.
const MAX_ROUTES: usize = 64;

/// Packets of which congestion alone does not mark all.
const MANY_PACKETS: u64 = 1_000;

/// Facts about peers that the tunnel does not know: by public keys in base64.
#[derive(Debug, Default)]
pub struct Known {
    names: HashMap<String, String>,
    /// Why their endpoints have no address.
    problems: HashMap<String, String>,
    /// Name and file of the tunnel through which this one goes.
    via: Option<String>,
    via_file: Option<PathBuf>,
    /// Families of the addresses inside that tunnel: IPv4, IPv6.
    via_families: [bool; 2],
}

impl Known {
    /// Takes the names of a configuration, and why endpoints have no address by public keys.
    pub fn new(config: &Config, problems: HashMap<PublicKey, String>) -> Self {
        let peers = config.peers.iter().chain(config.outer_peers());
        let named = peers.filter_map(|peer| {
            let name = peer.friendly_name.clone()?;
            Some((text_of(&peer.public_key.value), name))
        });
        let problems = problems.into_iter();
        let via = config.via.as_ref();
        Self {
            via: via.map(|via| via.config.name.to_string()),
            via_file: via.map(|via| via.path.clone()),
            via_families: [false, true].map(|is_ipv6| {
                let addresses = via.iter().flat_map(|via| &via.config.interface.addresses);
                let mut families = addresses.map(|it| it.is_ipv6());
                families.any(|it| it == is_ipv6)
            }),
            names: named.collect(),
            problems: problems
                .map(|(key, problem)| (text_of(&key), problem))
                .collect(),
        }
    }

    /// Tells whether a tunnel with these peers, through which this one goes, leads to an endpoint.
    fn inside(&self, outer: &[Peer]) -> Inside {
        let name = self.via.as_deref().unwrap_or("the outer tunnel");
        Inside::new(name, self.via_families, outer)
    }
}

/// Describes what a tunnel reports, and why its peers cannot be reached.
pub fn describe(report: Report, known: &Known) -> Status {
    let mtu = report.counters.state.get("mtu");
    let recent = report.recent.and_then(|recent| {
        let seconds = recent.milliseconds as f64 / 1_000.0;
        Rate::of(recent.inbound.bytes, recent.outbound.bytes, seconds)
    });
    let fwmark = report.fwmark;
    let warnings = [marks(&report.counters), loops(&report)];
    let warnings = warnings.into_iter().flatten().collect();
    let by_host = |endpoint| route::refusal(endpoint, fwmark).map(Cow::Borrowed);
    // Endpoints inside another tunnel need no route of this host.
    let inside = report
        .outer
        .as_ref()
        .map(|outer| known.inside(&outer.peers));
    let peers = match inside {
        Some(inside) => describe_all(report.peers, known, |it| inside.refusal(it).map(Cow::Owned)),
        None => describe_all(report.peers, known, by_host),
    };
    let via = report.outer.map(|outer| ViaStatus {
        name: known.via.clone().unwrap_or_default(),
        config: known.via_file.clone(),
        public_key: outer.public_key,
        peers: describe_all(outer.peers, known, by_host),
        stats: outer.counters,
    });
    Status {
        version: Some(report.version),
        public_key: report.public_key,
        mtu: mtu.and_then(|mtu| mtu.parse().ok()),
        listen_port: report.listen_port,
        fwmark,
        rate: recent,
        peers,
        via,
        warnings,
        relays: report.relays,
        stats: Some(report.counters),
        ..Status::default()
    }
}

/// `refusal`: why nothing leads to an endpoint.
fn describe_all(
    peers: Vec<Peer>,
    known: &Known,
    refusal: impl Fn(SocketAddr) -> Option<Cow<'static, str>>,
) -> Vec<PeerStatus> {
    let numbered = peers.into_iter().enumerate();
    let described = numbered.map(|(number, peer)| {
        let endpoint = peer.endpoint.as_ref().filter(|_| number < MAX_ROUTES);
        let refusal = endpoint.and_then(|it| refusal(it.parse().ok()?));
        describe_peer(peer, known, refusal.as_deref())
    });
    described.collect()
}

/// Says that routers mark all packets as congested, if they do: connections with ECN stay slow then.
fn marks(counters: &Counters) -> Option<String> {
    let (marked, all) = (counters.congested_packets(), counters.inbound.packets);
    // Congestion marks some. A packet that was marked may have been dropped afterwards.
    let is_whole = all >= MANY_PACKETS && marked.saturating_mul(100) >= all.saturating_mul(99);
    is_whole.then(|| {
        format!(
            "{marked} of {all} packets came marked as congested (ECN CE): a router on the way marks everything, so \
             connections that use ECN stay slow (fix: that router, or `sysctl net.ipv4.tcp_ecn=0` at both ends)"
        )
    })
}

/// Says that the way to a peer leads into the tunnel itself, if a peer is not connected and datagrams came back.
fn loops(report: &Report) -> Option<String> {
    let (drops, peers) = match &report.outer {
        Some(outer) => (outer.counters.as_ref().map(|it| &it.drops), &outer.peers),
        None => (Some(&report.counters.drops), &report.peers),
    };
    let dropped = drops?.get("outbound_loop").copied();
    let dropped = dropped.filter(|count| *count > 0)?;
    let mut peers = peers.iter();
    let is_cut_off = peers.any(|it| it.endpoint.is_some() && it.connected_since.is_none());
    is_cut_off.then(|| {
        format!(
            "{dropped} datagrams of the tunnel were routed back into it and dropped (fix: remove the route to the \
             peer's endpoint through this interface; `convoy doctor` names the endpoint)"
        )
    })
}

/// `refusal`: why the host has no route to its endpoint.
fn describe_peer(peer: Peer, known: &Known, refusal: Option<&str>) -> PeerStatus {
    let unknown = known.problems.get(&peer.public_key);
    let (state, problem) = match &peer.endpoint {
        Some(endpoint) => state_at(&peer, endpoint, refusal),
        None => match unknown {
            Some(problem) => (PeerState::NameNotFound, Some(problem.clone())),
            None => {
                let problem = "it has no endpoint: it must call first";
                (PeerState::NoEndpoint, Some(problem.to_owned()))
            }
        },
    };
    PeerStatus {
        name: known.names.get(&peer.public_key).cloned(),
        state,
        problem,
        rate: None,
        peer,
    }
}

fn state_at(peer: &Peer, endpoint: &str, refusal: Option<&str>) -> (PeerState, Option<String>) {
    if let Some(refusal) = refusal {
        let problem = format!("no route to {endpoint}: {refusal}");
        return (PeerState::NoRoute, Some(problem));
    }
    let failure = failure_of(peer, endpoint);
    if peer.connected_since.is_some() {
        // Perhaps not for much longer.
        return (PeerState::Connected, failure.map(|(_, problem)| problem));
    }
    match failure {
        Some((state, problem)) => (state, Some(problem)),
        None if peer.is_handshaking => (PeerState::Connecting, None),
        None => (PeerState::Idle, None),
    }
}

/// Returns why its handshakes fail, if they do.
fn failure_of(peer: &Peer, endpoint: &str) -> Option<(PeerState, String)> {
    let times = |count: u32| match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    };
    if peer.unauthentic_responses > 0 {
        let problem = format!(
            "{endpoint} has answered {} with other keys: check that both sides have the same preshared key",
            times(peer.unauthentic_responses)
        );
        return Some((PeerState::NotAuthentic, problem));
    }
    (peer.unanswered_initiations > 0).then(|| {
        let problem = format!(
            "{endpoint} was called {} and has not answered: check its address and port, its public key, and \
             that it knows ours",
            times(peer.unanswered_initiations)
        );
        (PeerState::NoAnswer, problem)
    })
}

fn text_of(key: &PublicKey) -> String {
    encode_key(&key.0).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_peer_says_why_packets_do_not_get_through() {
        let connected = Peer {
            connected_since: Some(7),
            ..called()
        };
        let silent = Peer {
            unanswered_initiations: 3,
            ..called()
        };
        let waiting = Peer {
            is_handshaking: true,
            ..called()
        };
        let other = Peer {
            unauthentic_responses: 1,
            unanswered_initiations: 3,
            ..called()
        };
        let caller = Peer {
            endpoint: None,
            ..called()
        };
        for (peer, refusal, state, words) in [
            (called(), None, PeerState::Idle, ""),
            (connected.clone(), None, PeerState::Connected, ""),
            (waiting.clone(), None, PeerState::Connecting, ""),
            (silent, None, PeerState::NoAnswer, "called 3 times"),
            (other, None, PeerState::NotAuthentic, "answered once"),
            (caller, None, PeerState::NoEndpoint, "must call first"),
            (
                waiting,
                Some("Network is unreachable"),
                PeerState::NoRoute,
                "no route to 192.0.2.1:51820: Network is unreachable",
            ),
            (connected, Some("x"), PeerState::NoRoute, ""),
        ] {
            let status = describe_peer(peer, &Known::default(), refusal);
            assert_eq!(status.state, state);
            let problem = status.problem.unwrap_or_default();
            assert!(problem.contains(words), "no {words:?} in {problem}");
        }
    }

    #[test]
    fn a_session_lasts_while_its_renewal_gets_no_answer() {
        let peer = Peer {
            connected_since: Some(7),
            unanswered_initiations: 1,
            ..called()
        };
        let status = describe_peer(peer, &Known::default(), None);
        assert_eq!(status.state, PeerState::Connected);
        assert!(status.problem.unwrap().contains("has not answered"));
    }

    #[test]
    fn a_name_without_an_address_is_the_reason() {
        let text = "[Interface]\nPrivateKey = BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n[Peer]\n# friendly_name = Office\n\
            PublicKey = BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\nEndpoint = vpn.example.org:1\n";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.conf");
        std::fs::write(&path, text).unwrap();
        let config = convoy_config::read(&path).unwrap().config;
        let key = config.peers[0].public_key.value;
        let problem = "name not found: vpn.example.org".to_owned();
        let known = Known::new(&config, HashMap::from([(key, problem.clone())]));
        let peer = Peer {
            public_key: text_of(&key),
            endpoint: None,
            ..called()
        };
        let status = describe_peer(peer, &known, None);
        assert_eq!(status.state, PeerState::NameNotFound);
        assert_eq!(status.problem, Some(problem));
        assert_eq!(status.name.as_deref(), Some("Office"));
    }

    #[test]
    fn of_two_tunnels_only_the_outer_one_can_be_routed_into_itself() {
        let dropped = |count| [("outbound_loop".to_owned(), count)].into();
        let connected = Peer {
            connected_since: Some(7),
            ..called()
        };
        let mut report = Report {
            peers: vec![called()],
            outer: Some(convoy_report::OuterReport {
                peers: vec![connected],
                ..Default::default()
            }),
            ..Report::default()
        };
        let told = |report: &Report| {
            let status = describe(report.clone(), &Known::default());
            status.warnings.iter().any(|it| it.contains("routed back"))
        };
        let counted = convoy_report::OuterCounters {
            drops: dropped(3),
            ..Default::default()
        };
        report.outer.as_mut().unwrap().counters = Some(counted);
        assert!(!told(&report), "the first hop answers");
        report.outer.as_mut().unwrap().peers = vec![called()];
        assert!(told(&report));
    }

    /// Nothing has happened with it yet.
    fn called() -> Peer {
        Peer {
            public_key: "key".to_owned(),
            endpoint: Some("192.0.2.1:51820".to_owned()),
            ..Peer::default()
        }
    }
}
