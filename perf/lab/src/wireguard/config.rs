//! The configuration of a device in the form that its UAPI socket takes, and keys.

use std::fmt::{self, Write};
use std::net::SocketAddr;

use base64::{Engine, prelude::BASE64_STANDARD};
use hex::encode as hex;
use x25519_dalek::{PublicKey, StaticSecret};

/// The whole configuration of a device; replaces the previous one.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's private key.
    pub private_key: [u8; 32],
    /// The UDP port to listen on; 0 lets the daemon choose.
    pub listen_port: u16,
    /// Its peers.
    pub peers: Vec<Peer>,
}

/// One peer of a [`Config`].
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The peer's identity.
    pub public_key: [u8; 32],
    /// The preshared key of both peers.
    pub preshared_key: Option<[u8; 32]>,
    /// Its address; without one, the peer has to start the handshake.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between persistent keepalives; 0 for none.
    pub persistent_keepalive: u16,
    /// Allowed IPs, for example `10.0.0.2/32`.
    pub allowed_ips: Vec<String>,
}

/// Formats a `set` request of the WireGuard cross-platform interface.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "set=1\nprivate_key={}", hex(self.private_key))?;
        writeln!(f, "listen_port={}\nreplace_peers=true", self.listen_port)?;
        for peer in &self.peers {
            writeln!(f, "public_key={}", hex(peer.public_key))?;
            if let Some(key) = peer.preshared_key {
                writeln!(f, "preshared_key={}", hex(key))?;
            }
            if let Some(endpoint) = peer.endpoint {
                writeln!(f, "endpoint={endpoint}")?;
            }
            let keepalive = peer.persistent_keepalive;
            writeln!(f, "persistent_keepalive_interval={keepalive}")?;
            writeln!(f, "replace_allowed_ips=true")?;
            for network in &peer.allowed_ips {
                writeln!(f, "allowed_ip={network}")?;
            }
        }
        f.write_char('\n')
    }
}

/// A private key and its public key.
#[derive(Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: [u8; 32],
    /// The public key.
    pub public: [u8; 32],
}

impl KeyPair {
    /// A new random pair.
    pub fn generate() -> Self {
        let private = StaticSecret::from(rand::random::<[u8; 32]>());
        Self {
            private: private.to_bytes(),
            public: PublicKey::from(&private).to_bytes(),
        }
    }

    /// The public key as `wg` shows it.
    pub fn public_base64(&self) -> String {
        BASE64_STANDARD.encode(self.public)
    }

    /// The private key as a configuration file holds it.
    pub fn private_base64(&self) -> String {
        BASE64_STANDARD.encode(self.private)
    }
}

/// Shows the public key only.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.public_base64())
    }
}
