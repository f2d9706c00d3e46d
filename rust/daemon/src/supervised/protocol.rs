//! The messages between a tunnel and its supervisor: a line of JSON each.
//!
//! The first are the supervisor's [`ToTunnel::Hello`], and the tunnel's [`ToSupervisor::Hello`] in return, with which
//! the descriptor of the TUN comes. The two processes may be of different versions: kinds and fields that the
//! receiver does not know are ignored.

use std::net::{IpAddr, SocketAddr};

use convoy_process::message::Message;
use convoy_proto::config::{DirectPeer, Directs, Prefix, Relay, RelayTransport};
use serde::{Deserialize, Serialize};

pub use super::key::{Key, Secret};
use super::outer::OuterTunnel;

/// A message of a tunnel to its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToSupervisor {
    /// Introduces the tunnel to each new supervisor.
    Hello {
        /// Version of the program.
        version: String,
        /// The interface's present name.
        interface: String,
        /// Whether it goes through an outer tunnel, and sends nothing until it is configured.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_outer: bool,
    },
    /// A UAPI client wants to change the firewall mark or the port, which waits for the answer.
    Asks {
        /// Number of the question.
        id: u64,
        /// The mark; 0 for none.
        fwmark: Option<u32>,
        /// The port; 0 for any.
        listen_port: Option<u16>,
    },
    /// A UAPI client has changed something: the supervisor may look.
    Changed,
    /// Outcome of a handshake with a followed peer; `given_up` if no other attempt follows by itself.
    Handshake {
        /// The peer.
        peer: Key,
        /// Whether the peer has answered.
        answered: bool,
        /// Whether the tunnel has given up for now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        given_up: bool,
    },
    /// A followed peer has a new endpoint.
    Moved {
        /// The peer.
        peer: Key,
        /// Its new endpoint.
        endpoint: SocketAddr,
    },
    /// Data to a followed peer that is met through a hub takes another path.
    Path {
        /// The peer.
        peer: Key,
        /// The address of the direct path; without one, data goes by the hub.
        remote: Option<SocketAddr>,
        /// How the address came to be known, in one word.
        kind: Option<String>,
        /// Why there is no direct path, in one word.
        why: Option<String>,
    },
    /// Data to a followed peer takes this TURN server from now on, or none.
    Relay {
        /// The peer.
        peer: Key,
        /// The server's address and port.
        server: Option<SocketAddr>,
        /// The transport to it.
        #[serde(default)]
        transport: Option<RelayTransport>,
    },
    /// The tunnel is ending in an orderly way.
    Ended {
        /// The reason, for the log.
        reason: String,
    },
    /// A kind of another version.
    #[serde(other)]
    Unknown,
}

/// A message of a supervisor to its tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToTunnel {
    /// Introduces a supervisor; before it, the tunnel says nothing.
    Hello {
        /// Version of the program.
        version: String,
    },
    /// Answers [`ToSupervisor::Asks`]; without a reason for a refusal, the change takes effect.
    Answers {
        /// Number of the question.
        id: u64,
        /// Reason for a refusal.
        refused: Option<String>,
    },
    /// The peers whose handshakes to report, replacing the former ones.
    Follow {
        /// Their keys.
        peers: Vec<Key>,
    },
    /// Peers with which to begin a handshake now.
    Handshake {
        /// Their keys.
        peers: Vec<Key>,
    },
    /// The direct paths of the tunnel, replacing the former ones.
    Directs(DirectPaths),
    /// The TURN servers of the tunnel, the preferred one first, replacing the former ones.
    Relays {
        /// The servers, with passwords.
        relays: Vec<Relay>,
    },
    /// The outer tunnel, which replaces the former one.
    Outer(OuterTunnel),
    /// Ends the tunnel.
    Stop,
    /// A kind of another version.
    #[serde(other)]
    Unknown,
}

/// Identifies the build: packages have numbers of their own, since one may be rebuilt without a new version.
pub const BUILD: &str = match option_env!("CONVOY_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

impl ToTunnel {
    /// Introduces this process.
    pub fn hello() -> Self {
        Self::Hello {
            version: BUILD.to_owned(),
        }
    }
}

impl Message for ToSupervisor {
    /// Longest message to a supervisor, in bytes.
    const MAX_BYTES: usize = 64 << 10;
}

impl Message for ToTunnel {
    /// Longest message to a tunnel, in bytes: some 20,000 peers.
    const MAX_BYTES: usize = 1 << 20;
}

/// The direct paths of a tunnel, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DirectPaths {
    /// Addresses of this machine inside the tunnel.
    pub own: Vec<IpAddr>,
    /// The peers.
    pub peers: Vec<Direct>,
    /// Addresses of this machine outside of the tunnel, most useful first.
    pub hosts: Vec<IpAddr>,
    /// Addresses at which routers forward to this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mapped: Vec<SocketAddr>,
    /// STUN servers.
    pub stun: Vec<SocketAddr>,
}

impl From<DirectPaths> for Directs {
    fn from(paths: DirectPaths) -> Self {
        let peers = paths.peers.into_iter().map(|direct| DirectPeer {
            public_key: direct.peer.0,
            preshared_key: direct.preshared_key.map(|Secret(key)| key),
            hub: direct.hub.0,
            allowed_ips: direct.allowed_ips,
        });
        Self {
            own: paths.own,
            peers: peers.collect(),
            hosts: paths.hosts,
            mapped: paths.mapped,
            stun: paths.stun,
        }
    }
}

/// A peer that is met through a hub.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Direct {
    /// Its key.
    pub peer: Key,
    /// Its preshared key, in base64 on the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key: Option<Secret>,
    /// The hub's key.
    pub hub: Key,
    /// Its prefixes, the first of which is its address inside the tunnel.
    pub allowed_ips: Vec<Prefix>,
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::{Authorities, Password, PrivateKey, PublicKey};
    use serde::de::DeserializeOwned;

    use super::{
        super::outer::{OuterPeer, OwnSecret},
        *,
    };

    #[test]
    fn a_message_is_readable_by_people() {
        let peer = Key(PublicKey([7; 32]));
        let line = serde_json::to_string(&ToSupervisor::Handshake {
            peer,
            answered: true,
            given_up: false,
        });
        let expected = r#"{"type":"handshake","peer":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=","answered":true}"#;
        assert_eq!(line.unwrap(), expected);
    }

    #[test]
    fn every_message_passes_between_this_version_and_earlier_ones() {
        fn passes<T>(message: &T, line: &str)
        where
            T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
        {
            assert_eq!(serde_json::to_string(message).unwrap(), line);
            assert_eq!(serde_json::from_str::<T>(line).unwrap(), *message);
        }
        let peer = Key(PublicKey([7; 32]));
        let key = String::from(peer);
        let (version, interface) = ("0.1.0".to_owned(), "wg0".to_owned());
        let hello = |has_outer| ToSupervisor::Hello {
            version: version.clone(),
            interface: interface.clone(),
            has_outer,
        };
        passes(
            &hello(false),
            r#"{"type":"hello","version":"0.1.0","interface":"wg0"}"#,
        );
        passes(
            &hello(true),
            r#"{"type":"hello","version":"0.1.0","interface":"wg0","has_outer":true}"#,
        );
        let (id, fwmark, listen_port) = (3, Some(51820), None);
        let asks = ToSupervisor::Asks {
            id,
            fwmark,
            listen_port,
        };
        passes(
            &asks,
            r#"{"type":"asks","id":3,"fwmark":51820,"listen_port":null}"#,
        );
        passes(&ToSupervisor::Changed, r#"{"type":"changed"}"#);
        let given_up = ToSupervisor::Handshake {
            peer,
            answered: false,
            given_up: true,
        };
        passes(
            &given_up,
            &format!(r#"{{"type":"handshake","peer":"{key}","answered":false,"given_up":true}}"#),
        );
        let endpoint = "192.0.2.1:51820".parse().unwrap();
        passes(
            &ToSupervisor::Moved { peer, endpoint },
            &format!(r#"{{"type":"moved","peer":"{key}","endpoint":"192.0.2.1:51820"}}"#),
        );
        let (remote, kind) = (Some(endpoint), Some("host".to_owned()));
        let why = None;
        passes(
            &ToSupervisor::Path {
                peer,
                remote,
                kind,
                why,
            },
            &format!(
                r#"{{"type":"path","peer":"{key}","remote":"192.0.2.1:51820","kind":"host","why":null}}"#
            ),
        );
        let server = Some("192.0.2.9:3478".parse().unwrap());
        passes(
            &ToSupervisor::Relay {
                peer,
                server,
                transport: Some(RelayTransport::Tls),
            },
            &format!(
                r#"{{"type":"relay","peer":"{key}","server":"192.0.2.9:3478","transport":"tls"}}"#
            ),
        );
        let reason = "SIGTERM".to_owned();
        passes(
            &ToSupervisor::Ended { reason },
            r#"{"type":"ended","reason":"SIGTERM"}"#,
        );
        let version = "0.1.0".to_owned();
        passes(
            &ToTunnel::Hello { version },
            r#"{"type":"hello","version":"0.1.0"}"#,
        );
        let refused = Some("no".to_owned());
        passes(
            &ToTunnel::Answers { id, refused },
            r#"{"type":"answers","id":3,"refused":"no"}"#,
        );
        let peers = || vec![peer];
        passes(
            &ToTunnel::Follow { peers: peers() },
            &format!(r#"{{"type":"follow","peers":["{key}"]}}"#),
        );
        passes(
            &ToTunnel::Handshake { peers: peers() },
            &format!(r#"{{"type":"handshake","peers":["{key}"]}}"#),
        );
        let mut directs = DirectPaths {
            own: vec!["10.8.0.2".parse().unwrap()],
            peers: vec![Direct {
                peer,
                preshared_key: None,
                hub: peer,
                allowed_ips: vec!["10.8.0.3/32".parse().unwrap()],
            }],
            hosts: vec!["192.0.2.1".parse().unwrap()],
            mapped: Vec::new(),
            stun: vec!["192.0.2.9:3478".parse().unwrap()],
        };
        let former = format!(
            r#"{{"type":"directs","own":["10.8.0.2"],"peers":[{{"peer":"{key}","hub":"{key}","allowed_ips":["10.8.0.3/32"]}}],"hosts":["192.0.2.1"],"stun":["192.0.2.9:3478"]}}"#
        );
        passes(&ToTunnel::Directs(directs.clone()), &former);
        directs.mapped = vec!["198.51.100.7:51820".parse().unwrap()];
        let present = former.replace(r#""stun""#, r#""mapped":["198.51.100.7:51820"],"stun""#);
        passes(&ToTunnel::Directs(directs), &present);
        let relay = Relay {
            host: "turn.example.org".to_owned(),
            server: "192.0.2.9:3478".parse().unwrap(),
            transport: RelayTransport::Udp,
            user: "alice".to_owned(),
            password: Password("hunter2".to_owned()),
            authorities: Authorities::default(),
        };
        let relays = ToTunnel::Relays {
            relays: vec![relay],
        };
        assert!(!format!("{relays:?}").contains("hunter2"));
        passes(
            &relays,
            r#"{"type":"relays","relays":[{"host":"turn.example.org","server":"192.0.2.9:3478","transport":"udp","user":"alice","password":"hunter2","authorities":""}]}"#,
        );
        let outer = OuterTunnel {
            private_key: OwnSecret(PrivateKey([7; 32])),
            addresses: vec!["10.9.0.2".parse().unwrap()],
            peers: vec![OuterPeer {
                peer,
                preshared_key: None,
                endpoint: Some(endpoint),
                is_moved: false,
                persistent_keepalive: 25,
                allowed_ips: vec!["0.0.0.0/0".parse().unwrap()],
            }],
        };
        passes(
            &ToTunnel::Outer(outer),
            &format!(
                r#"{{"type":"outer","private_key":"{key}","addresses":["10.9.0.2"],"peers":[{{"peer":"{key}","endpoint":"192.0.2.1:51820","persistent_keepalive":25,"allowed_ips":["0.0.0.0/0"]}}]}}"#
            ),
        );
        passes(&ToTunnel::Stop, r#"{"type":"stop"}"#);
    }

    #[test]
    fn what_another_version_adds_is_ignored() {
        let parse = |line| serde_json::from_str::<ToTunnel>(line).unwrap();
        assert_eq!(parse(r#"{"type":"stop","gently":true}"#), ToTunnel::Stop);
        assert_eq!(parse(r#"{"type":"dance","to":[1]}"#), ToTunnel::Unknown);
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        for key in ["", "BwcH", "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"] {
            let line = format!(r#"{{"type":"follow","peers":["{key}"]}}"#);
            serde_json::from_str::<ToTunnel>(&line).unwrap_err();
        }
    }
}
