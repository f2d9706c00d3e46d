//! The message that describes the outer tunnel.

use std::net::{IpAddr, SocketAddr};

use convoy_config::{decode_key, encode_key};
use convoy_proto::config::{AllowedIpUpdate, PeerUpdate, Prefix, PrivateKey};
use convoy_tunnel::Outer;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::key::{Key, Secret};

/// The complete outer tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OuterTunnel {
    /// Its private key, in base64 on the line.
    pub private_key: OwnSecret,
    /// Addresses of this machine inside it.
    pub addresses: Vec<IpAddr>,
    /// Its peers.
    pub peers: Vec<OuterPeer>,
}

/// A peer of such a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OuterPeer {
    /// Its key.
    pub peer: Key,
    /// Its preshared key, in base64 on the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key: Option<Secret>,
    /// Its endpoint, unless its name is being looked up.
    pub endpoint: Option<SocketAddr>,
    /// Whether to move it back to this endpoint even if it has roamed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_moved: bool,
    /// Seconds between persistent keepalives; 0 for none.
    pub persistent_keepalive: u16,
    /// Its prefixes.
    pub allowed_ips: Vec<Prefix>,
}

/// A private key, in base64 on the line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Zeroizing<String>", into = "Zeroizing<String>")]
pub struct OwnSecret(pub PrivateKey);

impl TryFrom<Zeroizing<String>> for OwnSecret {
    type Error = &'static str;

    fn try_from(text: Zeroizing<String>) -> Result<Self, Self::Error> {
        let key = decode_key(&text).ok_or("a private key is 32 bytes in base64")?;
        Ok(Self(PrivateKey(*key)))
    }
}

impl From<OwnSecret> for Zeroizing<String> {
    fn from(key: OwnSecret) -> Self {
        encode_key(&key.0.0)
    }
}

impl From<OuterTunnel> for Outer {
    fn from(outer: OuterTunnel) -> Self {
        let moved = outer.peers.iter().filter(|it| it.is_moved);
        Self {
            private_key: outer.private_key.0,
            moved: moved.map(|it| it.peer.0).collect(),
            addresses: outer.addresses,
            peers: outer.peers.into_iter().map(PeerUpdate::from).collect(),
        }
    }
}

impl From<OuterPeer> for PeerUpdate {
    fn from(peer: OuterPeer) -> Self {
        let prefixes = peer.allowed_ips.into_iter();
        Self {
            preshared_key: Some(peer.preshared_key.map(|Secret(key)| key)),
            endpoint: peer.endpoint,
            persistent_keepalive: Some(peer.persistent_keepalive),
            allowed_ips: prefixes
                .map(|network| AllowedIpUpdate {
                    network,
                    remove: false,
                })
                .collect(),
            ..Self::new(peer.peer.0)
        }
    }
}
