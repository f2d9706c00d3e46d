//! The device's key pair, and the first look at handshake messages.

use std::{net::IpAddr, sync::Arc, time::Duration};

use boringtun::{
    noise::{Packet, handshake::parse_handshake_anon},
    x25519,
};

use convoy_types::{PrivateKey, PublicKey, counters::DropReason};

use crate::{
    handshake_limiter::HandshakeLimiter, macs::Macs, messages::COOKIE_REPLY, wipe::leave_no_trace,
};

/// The device's key pair, and the MACs and cookies that belong to it.
pub struct Identity {
    pub(crate) keys: Arc<KeyPair>,
    macs: Macs,
}

/// A key pair; boringtun's type wipes the private key when it is dropped.
pub(crate) struct KeyPair {
    pub(crate) private: x25519::StaticSecret,
    pub(crate) public: x25519::PublicKey,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.public_key())
    }
}

/// The result of screening a handshake message.
pub enum Screened {
    /// An initiation that claims this static key; not yet authenticated.
    Initiation(PublicKey),
    /// A response to the handshake with this local index.
    Response {
        /// The index.
        receiver: u32,
    },
    /// A cookie reply to the handshake message with this local index.
    CookieReply {
        /// The index.
        receiver: u32,
    },
    /// Under load the sender must prove its address: this reply gives it a cookie.
    AskForCookie([u8; COOKIE_REPLY]),
}

impl Identity {
    /// Derives the public key.
    #[must_use]
    pub fn new(key: &PrivateKey) -> Self {
        let private = x25519::StaticSecret::from(key.0);
        let public = x25519::PublicKey::from(&private);
        Self {
            macs: Macs::new(&public),
            keys: Arc::new(KeyPair { private, public }),
        }
    }

    /// The device's public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.keys.public.to_bytes())
    }

    /// The device's private key.
    #[must_use]
    pub fn private_key(&self) -> PrivateKey {
        PrivateKey(self.keys.private.to_bytes())
    }

    /// Checks the format of a handshake message or cookie reply; of a handshake message also MAC1 and, under
    /// load, MAC2.
    ///
    /// `handshakes`, the rate limiter, if given, comes last before the first Diffie-Hellman operation.
    pub fn screen(
        &mut self,
        from: IpAddr,
        datagram: &[u8],
        handshakes: Option<&mut HandshakeLimiter>,
        now: Duration,
    ) -> Result<Screened, DropReason> {
        let mut reply = [0; COOKIE_REPLY];
        let is_asking = handshakes.as_ref().is_some_and(|it| it.would_ask(now));
        let room = if is_asking {
            self.macs.renew_secret(now);
            &mut reply[..]
        } else {
            &mut []
        };
        let (packet, has_mac2) = self.macs.check(from, datagram, room)?;
        match packet {
            Packet::PacketCookieReply(cookie) => {
                return Ok(Screened::CookieReply {
                    receiver: cookie.receiver_idx,
                });
            }
            Packet::PacketData(_) => return Err(DropReason::InboundNotWireGuard),
            Packet::HandshakeInit(_) | Packet::HandshakeResponse(_) => {}
        }
        if let Some(handshakes) = handshakes
            && handshakes.count(now)
        {
            // Only a right MAC2 ties a message to its address. If other messages took tokens of that
            // address, anybody could use them up.
            let is_admitted = match has_mac2 {
                true => handshakes.admit(from, now),
                false => is_asking && handshakes.may_send_cookie(now),
            };
            if !is_admitted {
                return Err(DropReason::InboundUnderLoad);
            }
            if !has_mac2 {
                return Ok(Screened::AskForCookie(reply));
            }
        }
        match packet {
            Packet::HandshakeInit(initiation) => {
                let KeyPair { private, public } = &*self.keys;
                let half = leave_no_trace(|| parse_handshake_anon(private, public, &initiation));
                let half = half.map_err(|_| DropReason::InboundBadHandshake)?;
                Ok(Screened::Initiation(PublicKey(half.peer_static_public)))
            }
            Packet::HandshakeResponse(response) => Ok(Screened::Response {
                receiver: response.receiver_idx,
            }),
            _ => Err(DropReason::InboundNotWireGuard),
        }
    }
}
