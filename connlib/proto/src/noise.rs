//! The only file that names boringtun: handshakes, session keys, replay windows and cookies.
//!
//! boringtun does the cryptography and the message formats. Its timers are not the paper's, so none
//! of them decides anything here: `update_timers` runs before handshake messages only to advance
//! its clock. Messages that it emits by itself are dropped, except an initiation that is wanted
//! anyway, or whose response it would await for ever (see `advance_clock`).

use std::{net::IpAddr, sync::Arc, time::Duration};

use boringtun::{
    noise::{
        Packet, Tunn, TunnResult, errors::WireGuardError, handshake::parse_handshake_anon,
        rate_limiter::RateLimiter,
    },
    x25519,
};

use crate::{
    config::{PresharedKey, PrivateKey, PublicKey},
    counters::DropReason,
    handshake_limiter::HandshakeLimiter,
    wipe::leave_no_trace,
};

/// Length of the longest handshake message, in bytes; a keepalive is shorter.
pub(crate) const CONTROL_BYTES: usize = 148;
/// Bytes that encryption adds to a packet: header and AEAD tag.
pub const DATA_OVERHEAD: usize = 32;
/// Sessions that one peer's [`Noise`] keeps: the low bits of the local index choose the slot.
pub(crate) const SESSIONS: u32 = 8;

/// The device's key pair, and boringtun's checks of MACs and cookies for it.
pub struct Identity {
    private: x25519::StaticSecret,
    public: x25519::PublicKey,
    limiter: RateLimiter,
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
    /// A response, or a cookie reply, for the handshake with this local index.
    Reply { receiver: u32 },
    /// Under load the sender must prove its address: this reply gives it a cookie.
    AskForCookie([u8; 64]),
}

impl Identity {
    /// Derives the public key.
    #[must_use]
    pub fn new(key: &PrivateKey) -> Self {
        let private = x25519::StaticSecret::from(key.0);
        let public = x25519::PublicKey::from(&private);
        Self {
            // "Under load" at any rate, so that it always checks MAC2.
            limiter: RateLimiter::new(&public, 0),
            private,
            public,
        }
    }

    /// The device's public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.public.to_bytes())
    }

    /// The device's private key.
    #[must_use]
    pub fn private_key(&self) -> PrivateKey {
        PrivateKey(self.private.to_bytes())
    }

    /// Checks MAC1 of a handshake message or cookie reply, and under load MAC2.
    ///
    /// `handshakes` has the last word before the first Diffie-Hellman operation.
    pub(crate) fn screen(
        &self,
        from: IpAddr,
        datagram: &[u8],
        handshakes: &mut HandshakeLimiter,
        now: Duration,
    ) -> Result<Screened, DropReason> {
        let (packet, has_mac2) = self.verify(from, datagram)?;
        match packet {
            Packet::PacketCookieReply(cookie) => {
                return Ok(Screened::Reply {
                    receiver: cookie.receiver_idx,
                });
            }
            Packet::PacketData(_) => return Err(DropReason::InboundNotWireGuard),
            Packet::HandshakeInit(_) | Packet::HandshakeResponse(_) => {}
        }
        if handshakes.count(now) {
            // Only a right MAC2 ties a message to its address: nothing else may count against that
            // address, or anybody could spend its share.
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
                let half = leave_no_trace(|| {
                    parse_handshake_anon(&self.private, &self.public, &initiation)
                });
                let half = half.map_err(|_| DropReason::InboundBadHandshake)?;
                Ok(Screened::Initiation(PublicKey(half.peer_static_public)))
            }
            Packet::HandshakeResponse(response) => Ok(Screened::Reply {
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
        // Without room for a cookie reply, boringtun seals none.
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
        let mut reply = [0; 64];
        match self.limiter.verify_packet(Some(from), datagram, &mut reply) {
            Err(TunnResult::WriteToNetwork(_)) => Ok(Screened::AskForCookie(reply)),
            _ => Err(DropReason::InboundUnderLoad),
        }
    }
}

/// The cryptographic state towards one peer.
pub struct Noise {
    tunn: Tunn,
    peer: PublicKey,
    preshared_key: Option<PresharedKey>,
    index: u32,
    /// The last accepted initiation: older ones are replays.
    accepted: Option<[u8; CONTROL_BYTES]>,
    /// The local index in the last message written.
    last: u32,
    /// The local index of the initiation whose response is awaited.
    awaited: Option<u32>,
}

impl std::fmt::Debug for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Noise({:06x})", self.index)
    }
}

/// The result of a handshake message from the peer.
#[derive(Debug)]
pub(crate) enum Handshaken<'a> {
    /// Answer the initiation with this response; the session has this index.
    Respond { response: &'a [u8], local: u32 },
    /// The response completed our handshake; `keepalive` confirms the session to the peer.
    Complete { keepalive: &'a [u8], local: u32 },
    /// A cookie for the next attempt.
    Cookie,
}

/// An authenticated data message.
#[derive(Debug)]
pub(crate) enum Opened {
    /// An empty message.
    Keepalive,
    /// An IP packet of this many bytes at the start of the buffer, without padding.
    Packet(usize),
    /// Contents that are no IP packet, or shorter than the packet's header says.
    Malformed,
}

impl Noise {
    /// Does the Diffie-Hellman operation of the two static keys; `index` are 24 bits unique to the peer.
    ///
    /// `None` for a public key of low order: anybody could impersonate such a peer.
    #[must_use]
    pub fn new(
        identity: &Identity,
        peer: PublicKey,
        preshared_key: Option<&PresharedKey>,
        index: u32,
    ) -> Option<Box<Self>> {
        let shared = identity
            .private
            .diffie_hellman(&x25519::PublicKey::from(peer.0));
        if !shared.was_contributory() {
            return None;
        }
        let tunn = Tunn::new(
            identity.private.clone(),
            x25519::PublicKey::from(peer.0),
            preshared_key.map(|key| key.0),
            None,
            index,
            Some(unlimited(identity)),
        );
        Some(Box::new(Self {
            tunn,
            peer,
            preshared_key: preshared_key.cloned(),
            index,
            accepted: None,
            last: index << 8,
            awaited: None,
        }))
    }

    /// The 24 bits that all local session indices of this peer begin with.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Encrypts `packet` in the current session into `buffer`; `None` if there is no session.
    pub(crate) fn seal<'a>(&mut self, packet: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        match self.tunn.encapsulate(packet, buffer) {
            TunnResult::WriteToNetwork(datagram) if is_data(datagram) => Some(datagram),
            _ => None,
        }
    }

    /// Decrypts a data message into `buffer`, which is at least as long as the ciphertext.
    pub(crate) fn open(
        &mut self,
        datagram: &[u8],
        buffer: &mut [u8],
    ) -> Result<Opened, DropReason> {
        match self.tunn.decapsulate(None, datagram, buffer) {
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                Ok(Opened::Packet(packet.len()))
            }
            TunnResult::Done => Ok(Opened::Keepalive),
            // Type and length were checked before, so the contents are malformed.
            TunnResult::Err(WireGuardError::InvalidPacket) => Ok(Opened::Malformed),
            TunnResult::Err(WireGuardError::InvalidAeadTag) => Err(DropReason::InboundBadTag),
            TunnResult::Err(WireGuardError::DuplicateCounter) => Err(DropReason::InboundReplay),
            TunnResult::Err(WireGuardError::InvalidCounter) => Err(DropReason::InboundBehindWindow),
            _ => Err(DropReason::InboundUnknownSession),
        }
    }

    /// Writes a handshake initiation into `buffer`.
    pub(crate) fn initiate<'a>(&mut self, buffer: &'a mut [u8; CONTROL_BYTES]) -> Option<&'a [u8]> {
        // boringtun may itself begin the handshake that is wanted. To begin another would make it
        // forget the one before, whose response may be on its way.
        if !self.update_timers(buffer) {
            self.begin_another(buffer)?;
        }
        self.await_response(buffer);
        Some(&buffer[..])
    }

    /// The local index that the next handshake would get.
    pub(crate) fn next_index(&self) -> u32 {
        (self.index << 8) | (self.last.wrapping_add(1) & 0xff)
    }

    /// Skips the next local index; `buffer` then holds an initiation with it.
    pub(crate) fn skip_index(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> Option<()> {
        self.begin_another(buffer)?;
        self.last = index_at(buffer, 4);
        Some(())
    }

    /// Whether a response is awaited.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Stops awaiting a response.
    pub(crate) fn stop_awaiting(&mut self) {
        self.awaited = None;
    }

    /// Awaits the response to the initiation in `buffer`, which is sent.
    pub(crate) fn await_response(&mut self, buffer: &[u8; CONTROL_BYTES]) {
        self.last = index_at(buffer, 4);
        self.awaited = Some(self.last);
    }

    fn begin_another(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> Option<()> {
        let written = leave_no_trace(|| self.tunn.format_handshake_initiation(buffer, true));
        matches!(written, TunnResult::WriteToNetwork(_)).then_some(())
    }

    /// Returns whether boringtun has begun a handshake, whose initiation is then in `buffer`.
    fn update_timers(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        let emitted = leave_no_trace(|| self.tunn.update_timers(&mut buffer[..]));
        matches!(emitted, TunnResult::WriteToNetwork(message) if message.len() == CONTROL_BYTES)
    }

    /// Handles an initiation, a response or a cookie reply.
    ///
    /// Takes only the response to the last initiation, as in the reference: the peer may have
    /// forgotten the session of an earlier one.
    pub(crate) fn handshake<'a>(
        &mut self,
        datagram: &[u8],
        buffer: &'a mut [u8; CONTROL_BYTES],
    ) -> Result<Handshaken<'a>, DropReason> {
        let message_type = datagram[0];
        if message_type == 2 && self.awaited != Some(index_at(datagram, 8)) {
            return Err(DropReason::InboundUnknownSession);
        }
        let tunn = &mut self.tunn;
        match leave_no_trace(move || tunn.decapsulate(None, datagram, buffer)) {
            TunnResult::WriteToNetwork(response) if message_type == 1 => {
                self.last = index_at(response, 4);
                self.accepted = datagram.first_chunk().copied();
                Ok(Handshaken::Respond {
                    local: self.last,
                    response,
                })
            }
            TunnResult::WriteToNetwork(keepalive) if message_type == 2 => {
                self.awaited = None;
                Ok(Handshaken::Complete {
                    local: index_at(datagram, 8),
                    keepalive,
                })
            }
            TunnResult::Done => Ok(Handshaken::Cookie),
            _ => Err(DropReason::InboundBadHandshake),
        }
    }

    /// Whether boringtun still has a session to send in: 90 seconds into a handshake it wipes all.
    pub(crate) fn has_session(&self) -> bool {
        self.tunn.time_since_last_handshake().is_some()
    }

    /// Advances the clock that stamps sessions, which only `update_timers` sets. Ignores what that
    /// emits: the timers here decide when to send.
    ///
    /// Returns whether it has begun a handshake of its own, whose initiation is then in `buffer`.
    pub(crate) fn advance_clock(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        let is_begun = self.update_timers(buffer);
        if is_begun {
            self.last = index_at(buffer, 4);
        }
        is_begun
    }

    /// The last accepted initiation.
    pub(crate) fn accepted(&self) -> Option<[u8; CONTROL_BYTES]> {
        self.accepted
    }

    /// The same state without sessions, elsewhere in memory: boringtun does not wipe the keys of
    /// sessions that it ends. It refuses `accepted`, and all initiations before it, as replays.
    pub(crate) fn renewed(
        &self,
        identity: &Identity,
        accepted: Option<&[u8; CONTROL_BYTES]>,
    ) -> Option<Box<Self>> {
        let preshared_key = self.preshared_key.as_ref();
        let mut renewed =
            leave_no_trace(|| Self::new(identity, self.peer, preshared_key, self.index))?;
        if let Some(initiation) = accepted {
            // The response is not sent, so nobody gets the keys of that session.
            let _ = renewed.handshake(initiation, &mut [0; CONTROL_BYTES]);
        }
        Some(renewed)
    }
}

/// A rate limiter that admits everything: the identity's has already decided on the message.
fn unlimited(identity: &Identity) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(&identity.public, u64::MAX))
}

/// The little-endian index at `offset` of a message; 0 if the message is too short.
pub(crate) fn index_at(message: &[u8], offset: usize) -> u32 {
    match message.get(offset..offset + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

fn is_data(datagram: &[u8]) -> bool {
    datagram.first() == Some(&4)
}
