//! The device's key pair, and the checks of handshake messages by boringtun.

use std::{net::IpAddr, sync::Arc, time::Duration};

use boringtun::{
    noise::{
        Packet, Tunn, TunnResult, errors::WireGuardError, handshake::parse_handshake_anon,
        rate_limiter::RateLimiter,
    },
    x25519,
};

use crate::{
    config::{PrivateKey, PublicKey},
    counters::DropReason,
    handshake_limiter::HandshakeLimiter,
    messages::COOKIE_REPLY,
    wipe::leave_no_trace,
};

/// The device's key pair, and boringtun's checks of MACs and cookies for it.
pub struct Identity {
    pub(super) keys: Arc<KeyPair>,
    limiter: RateLimiter,
}

/// A key pair; boringtun's type wipes the private key when it is dropped.
pub(super) struct KeyPair {
    pub(super) private: x25519::StaticSecret,
    pub(super) public: x25519::PublicKey,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.public_key())
    }
}

/// The result of screening a handshake message.
pub(crate) enum Screened {
    /// An initiation that claims this static key; not yet authenticated.
    Initiation(PublicKey),
    /// A response to the handshake with this local index.
    Response { receiver: u32 },
    /// A cookie reply to the handshake message with this local index.
    CookieReply { receiver: u32 },
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
            // With a limit of 0 it is always "under load", and so always checks MAC2.
            limiter: RateLimiter::new(&public, 0),
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
    pub(crate) fn screen(
        &self,
        from: IpAddr,
        datagram: &[u8],
        handshakes: Option<&mut HandshakeLimiter>,
        now: Duration,
    ) -> Result<Screened, DropReason> {
        let (packet, has_mac2) = self.verify(from, datagram)?;
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
                false => handshakes.may_send_cookie(now),
            };
            if !is_admitted {
                return Err(DropReason::InboundUnderLoad);
            }
            if !has_mac2 {
                return self.ask_for_cookie(from, datagram);
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

    /// Parses a message and checks its MAC1; returns whether its MAC2 is right, too.
    fn verify<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
    ) -> Result<(Packet<'a>, bool), DropReason> {
        // boringtun makes a cookie reply only if there is room for it.
        match self.limiter.verify_packet(Some(from), datagram, &mut []) {
            Ok(packet) => Ok((packet, true)),
            Err(TunnResult::Err(WireGuardError::DestinationBufferTooSmall)) => {
                let packet = Tunn::parse_incoming_packet(datagram);
                let packet = packet.map_err(|_| DropReason::InboundNotWireGuard)?;
                Ok((packet, false))
            }
            Err(TunnResult::Err(WireGuardError::InvalidMac)) => Err(DropReason::InboundBadMac),
            Err(_) => Err(DropReason::InboundNotWireGuard),
        }
    }

    fn ask_for_cookie(&self, from: IpAddr, datagram: &[u8]) -> Result<Screened, DropReason> {
        let mut reply = [0; COOKIE_REPLY];
        match self.limiter.verify_packet(Some(from), datagram, &mut reply) {
            Err(TunnResult::WriteToNetwork(_)) => Ok(Screened::AskForCookie(reply)),
            _ => Err(DropReason::InboundUnderLoad),
        }
    }
}
