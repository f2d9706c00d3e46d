//! Model of what `convoy events --json` prints: `rust/supervision/schema/events.schema.json` describes it.

use std::{fmt, net::SocketAddr};

use convoy_config::encode_key;
use convoy_process::message::Message;
use convoy_proto::config::PublicKey;
use convoy_stats::direct::reason;
use serde::Serialize;

/// A line of `convoy events --json`: something has happened to a tunnel.
///
/// Later versions may add events and fields; what is here keeps its name and meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// In UTC, as RFC 3339 writes it: `2026-01-31T23:59:59.123Z`.
    pub time: String,
    /// The tunnel's interface.
    pub interface: String,
    /// Words for what has happened.
    pub message: String,
    /// The event itself.
    #[serde(flatten)]
    pub what: What,
}

impl Message for Event {
    /// The most bytes of an event.
    const MAX_BYTES: usize = 1 << 20;
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The tunnel has come up.
    Up,
    /// The tunnel goes down. Its kill switch opens, unless it is persistent.
    Down {
        /// In words.
        reason: String,
    },
    /// A handshake with the peer was answered, which had not been up.
    PeerUp(Peer),
    /// The peer was up and no longer answers: since the last handshake, 180 s have passed, after which no session can
    /// be used, or 20 initiations had no answer.
    PeerDown(Peer),
    /// The peer has another endpoint: another one was chosen, or it has roamed.
    PeerMoved {
        /// The peer.
        #[serde(flatten)]
        peer: Peer,
        /// The former endpoint, if it is known.
        from: Option<String>,
    },
    /// Data to a direct peer takes another path.
    PathChanged {
        /// The peer's public key in base64.
        peer: String,
        /// Its address inside the tunnel.
        address: Option<String>,
        /// Address and port to which data goes, directly or by a relay; without one, it goes by the hub.
        remote: Option<String>,
        /// How this address came to be known: `host`, `mapped`, `reflexive` or `learnt`; `relayed` if a relay is on
        /// the path.
        kind: Option<String>,
        /// Why there is no direct path, in one word, as in `convoy status --json`.
        why: Option<String>,
    },
    /// Data to a peer takes another way: by a TURN server, as the peer itself did not answer, or directly again.
    RelayChanged {
        /// The peer.
        #[serde(flatten)]
        peer: Peer,
        /// Address and port of the TURN server; without one, data goes directly.
        relay: Option<String>,
        /// Transport to it: `udp`, `tcp` or `tls`.
        transport: Option<String>,
    },
    /// Datagrams leave by another device, gateway or source address than before.
    NetworkChanged,
    /// The machine has slept.
    WokeUp,
    /// From now on, nothing leaves outside the tunnel.
    KillSwitchClosed,
    /// Packets may leave outside the tunnel.
    KillSwitchOpened,
    /// Packets leave outside the tunnel for a time.
    Paused {
        /// For how long.
        seconds: u64,
    },
    /// The pause is over.
    Resumed,
    /// Another configuration is in effect.
    Reloaded,
    /// Something is wrong or missing from now on, or packets go elsewhere than one may expect.
    Warning {
        /// In words, as `convoy status` shows it.
        warning: String,
    },
    /// The provider forwards a port through the tunnel, or another one than before. Who follows later hears it first.
    PortForwarded {
        /// The port, of UDP and TCP.
        port: u16,
        /// The address at which the internet finds it, if it is known.
        address: Option<String>,
    },
    /// The provider forwards the port no longer.
    PortLost {
        /// In words.
        reason: String,
    },
    /// The process that carries the packets has died, and all sessions with it.
    TunnelDied {
        /// In words, if it is known.
        reason: Option<String>,
    },
    /// Another process carries the packets.
    TunnelRestarted,
    /// The process of `convoy up` is gone; what happened until another one runs is not known.
    SupervisorDied,
    /// Another process of `convoy up` has taken the tunnel over.
    SupervisorRestarted,
    /// Events are missing here, as they were not read in time.
    EventsLost {
        /// Their number.
        count: u64,
    },
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Peer {
    /// Its public key in base64.
    pub peer: String,
    /// The `# friendly_name` above it in the configuration.
    pub name: Option<String>,
    /// Its endpoint, if it is known.
    pub endpoint: Option<String>,
    /// The tunnel to which it belongs, if that is the one through which this one goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}

impl Event {
    /// Something that happens now.
    pub fn now(interface: &str, what: What) -> Self {
        let now = jiff::Timestamp::now();
        Self {
            time: format!("{now:.3}"),
            interface: interface.to_owned(),
            message: what.to_string(),
            what,
        }
    }
}

impl Peer {
    pub fn new(key: &PublicKey, name: Option<&str>, endpoint: Option<SocketAddr>) -> Self {
        Self {
            peer: encode_key(&key.0).as_str().to_owned(),
            name: name.map(str::to_owned),
            endpoint: endpoint.map(|endpoint| endpoint.to_string()),
            via: None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("the tunnel is up"),
            Self::Down { reason } => write!(f, "the tunnel goes down: {reason}"),
            Self::PeerUp(peer) => write!(f, "{peer} is up{}", At(" at ", &peer.endpoint)),
            Self::PeerDown(peer) => {
                write!(
                    f,
                    "{peer} is down: no answer{}",
                    At(" from ", &peer.endpoint)
                )
            }
            Self::PeerMoved { peer, from } => {
                let (from, to) = (At(" from ", from), At(" to ", &peer.endpoint));
                write!(f, "{peer} has moved{from}{to}")
            }
            Self::PathChanged {
                peer,
                address,
                remote,
                kind,
                why,
            } => {
                let peer = address.as_ref().unwrap_or(peer);
                match remote {
                    Some(remote) if kind.as_deref() == Some("relayed") => {
                        write!(f, "{peer} is reached by a relay, at {remote}")
                    }
                    Some(remote) => write!(f, "{peer} is reached directly, at {remote}"),
                    None => write!(
                        f,
                        "{peer} is reached by the hub: {}",
                        reason(why.as_deref())
                    ),
                }
            }
            Self::RelayChanged {
                peer,
                relay,
                transport,
            } => match relay {
                Some(relay) => {
                    write!(f, "{peer} is reached by the relay {relay}")?;
                    let mut transport = transport.iter();
                    transport.try_for_each(|it| write!(f, " ({it})"))
                }
                None => write!(f, "{peer} is reached directly, without a relay"),
            },
            Self::NetworkChanged => f.write_str("the network has changed"),
            Self::WokeUp => f.write_str("the machine has slept"),
            Self::KillSwitchClosed => f.write_str("the kill switch is closed"),
            Self::KillSwitchOpened => f.write_str("the kill switch is open"),
            Self::Paused { seconds } => {
                write!(
                    f,
                    "paused for {seconds} s: packets leave outside the tunnel"
                )
            }
            Self::Resumed => f.write_str("the pause is over"),
            Self::Reloaded => f.write_str("another configuration is in effect"),
            Self::Warning { warning } => f.write_str(warning),
            Self::PortForwarded { port, address } => {
                let at = At(" at ", address);
                write!(f, "the provider forwards the port {port}{at}")
            }
            Self::PortLost { reason } => {
                write!(f, "the provider forwards no port any more: {reason}")
            }
            Self::TunnelDied { reason: None } => f.write_str("the tunnel process has died"),
            Self::TunnelDied {
                reason: Some(reason),
            } => write!(f, "the tunnel process has died: {reason}"),
            Self::TunnelRestarted => f.write_str("another tunnel process was started"),
            Self::SupervisorDied => f.write_str("the supervisor is gone"),
            Self::SupervisorRestarted => f.write_str("another supervisor has taken over"),
            Self::EventsLost { count } => {
                write!(f, "{count} events were lost, as they were not read in time")
            }
        }
    }
}

/// By its name, if it has one, and by that of the other tunnel to which it belongs.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_ref().unwrap_or(&self.peer))?;
        match &self.via {
            Some(via) => write!(f, " of {via}"),
            None => Ok(()),
        }
    }
}

/// An endpoint and what stands before it; nothing if it is unknown.
struct At<'a>(&'static str, &'a Option<String>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(endpoint) => write!(f, "{}{endpoint}", self.0),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object_with_time_and_message() {
        let key = PublicKey([7; 32]);
        let endpoint = "192.0.2.2:51820".parse().ok();
        let what = What::PeerMoved {
            peer: Peer::new(&key, Some("Office"), endpoint),
            from: Some("192.0.2.1:51820".to_owned()),
        };
        let event = Event {
            time: "2026-01-31T23:59:59.123Z".to_owned(),
            ..Event::now("wg0", what)
        };
        let expected = r#"{"time":"2026-01-31T23:59:59.123Z","interface":"wg0","message":"Office has moved from 192.0.2.1:51820 to 192.0.2.2:51820","event":"peer_moved","peer":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=","name":"Office","endpoint":"192.0.2.2:51820","from":"192.0.2.1:51820"}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }

    #[test]
    fn a_path_is_told_in_words() {
        let changed = |remote: Option<&str>, why: Option<&str>| What::PathChanged {
            peer: "key".to_owned(),
            address: Some("10.8.0.3".to_owned()),
            remote: remote.map(str::to_owned),
            kind: None,
            why: why.map(str::to_owned),
        };
        let mut direct = changed(Some("192.0.2.7:51820"), None);
        let expected = "10.8.0.3 is reached directly, at 192.0.2.7:51820";
        assert_eq!(direct.to_string(), expected);
        if let What::PathChanged { kind, .. } = &mut direct {
            *kind = Some("relayed".to_owned());
        }
        let expected = "10.8.0.3 is reached by a relay, at 192.0.2.7:51820";
        assert_eq!(direct.to_string(), expected);
        let by_hub = changed(None, Some("unreachable")).to_string();
        let expected = "10.8.0.3 is reached by the hub: none of its addresses answers";
        assert_eq!(by_hub, expected);
    }

    #[test]
    fn a_relay_is_told_with_its_transport() {
        let changed = |relay: Option<&str>, transport: Option<&str>| What::RelayChanged {
            peer: Peer::new(&PublicKey([7; 32]), Some("Office"), None),
            relay: relay.map(str::to_owned),
            transport: transport.map(str::to_owned),
        };
        let by_tls = changed(Some("192.0.2.9:443"), Some("tls")).to_string();
        assert_eq!(by_tls, "Office is reached by the relay 192.0.2.9:443 (tls)");
        let unknown = changed(Some("192.0.2.9:443"), None).to_string();
        assert_eq!(unknown, "Office is reached by the relay 192.0.2.9:443");
        let directly = changed(None, None).to_string();
        assert_eq!(directly, "Office is reached directly, without a relay");
    }

    #[test]
    fn a_time_has_milliseconds() {
        let time = Event::now("wg0", What::Up).time;
        assert_eq!(time.len(), "2026-01-31T23:59:59.123Z".len(), "{time}");
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }

    #[test]
    fn a_peer_without_a_name_is_called_by_its_key() {
        let peer = Peer::new(&PublicKey([7; 32]), None, None);
        let words = What::PeerDown(peer).to_string();
        assert!(words.ends_with("BwcHBwc= is down: no answer"), "{words}");
    }
}
