//! The only file that names boringtun: handshakes, sessions' keys, replay windows and cookies.
//!
//! boringtun is used for cryptography and message formats. Its timers are not the paper's, so
//! none of them decides anything here: `update_timers` is called before handshake messages only
//! to advance its clock. What it emits by itself is dropped, but for an initiation where one is
//! wanted anyway, or where it would wait for the response for ever (see `advance_clock`).

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
    sources::Sources,
    wipe::leave_no_trace,
};

/// Handshake messages a second above which the node is under load and asks for cookies.
pub(crate) const HANDSHAKES_PER_SECOND: u64 = 200;

/// Room that any handshake message or keepalive needs, in bytes.
pub(crate) const CONTROL_BYTES: usize = 148;
/// What encryption adds to a packet, in bytes: header and AEAD tag.
pub const DATA_OVERHEAD: usize = 32;
/// Of MAC1 and of MAC2, in bytes; without a cookie MAC2 is zero (paper §5.4.4).
const MAC_BYTES: usize = 16;
/// Sessions that one peer's [`Noise`] keeps: the low bits of the local index choose the place.
pub(crate) const SESSIONS: u32 = 8;

/// The device's key pair, and the guard against handshake floods that belongs to it.
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

/// What the first look at a handshake message says.
pub(crate) enum Screened {
    /// An initiation by this peer; not yet authenticated beyond its static key.
    Initiation(PublicKey),
    /// A response, or a cookie reply, for the handshake with this local index.
    Reply { receiver: u32 },
    /// Under load, without a proof of its address: this cookie reply asks for one.
    AskForCookie([u8; 64]),
}

impl Identity {
    /// Derives the public key.
    #[must_use]
    pub fn new(key: &PrivateKey) -> Self {
        let private = x25519::StaticSecret::from(key.0);
        let public = x25519::PublicKey::from(&private);
        Self {
            limiter: RateLimiter::new(&public, HANDSHAKES_PER_SECOND),
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

    /// Checks MAC1, the load, and under load MAC2, of a handshake message or cookie reply.
    ///
    /// `sources` has the last word before the first Diffie-Hellman.
    pub(crate) fn screen(
        &self,
        from: IpAddr,
        datagram: &[u8],
        sources: &mut Sources,
        now: Duration,
    ) -> Result<Screened, DropReason> {
        // Without this "under load" would never end.
        self.limiter.reset_count();
        // Without an address only MAC1 is looked at: what is under load is then refused for little.
        let mut verified = self.limiter.verify_packet(None, datagram, &mut []);
        let is_refused = matches!(verified, Err(TunnResult::Err(WireGuardError::UnderLoad)));
        let is_handshake = matches!(
            verified,
            Ok(Packet::HandshakeInit(_) | Packet::HandshakeResponse(_))
        );
        let is_under_load = (is_refused || is_handshake) && sources.count(now);
        let claims_proof = !datagram.ends_with(&[0; MAC_BYTES]);
        let mut reply = [0; 64];
        if is_refused {
            let is_looked_at = match claims_proof {
                true => sources.may_claim(from, now),
                false => sources.may_be_asked(from, now),
            };
            if !is_looked_at {
                return Err(DropReason::InboundUnderLoad);
            }
            verified = self.limiter.verify_packet(Some(from), datagram, &mut reply);
        }
        if is_under_load && verified.is_ok() && !sources.admit(from, now) {
            return Err(DropReason::InboundUnderLoad);
        }
        match verified {
            Ok(Packet::HandshakeInit(initiation)) => {
                let half = leave_no_trace(|| {
                    parse_handshake_anon(&self.private, &self.public, &initiation)
                });
                let half = half.map_err(|_| DropReason::InboundBadHandshake)?;
                Ok(Screened::Initiation(PublicKey(half.peer_static_public)))
            }
            Ok(Packet::HandshakeResponse(response)) => Ok(Screened::Reply {
                receiver: response.receiver_idx,
            }),
            Ok(Packet::PacketCookieReply(cookie)) => Ok(Screened::Reply {
                receiver: cookie.receiver_idx,
            }),
            Ok(Packet::PacketData(_)) => Err(DropReason::InboundNotWireGuard),
            Err(TunnResult::WriteToNetwork(_))
                if claims_proof && !sources.may_be_asked(from, now) =>
            {
                Err(DropReason::InboundUnderLoad)
            }
            Err(TunnResult::WriteToNetwork(_)) => Ok(Screened::AskForCookie(reply)),
            Err(TunnResult::Err(WireGuardError::InvalidMac)) => Err(DropReason::InboundBadMac),
            Err(_) => Err(DropReason::InboundNotWireGuard),
        }
    }
}

/// The cryptographic state towards one peer.
pub struct Noise {
    tunn: Tunn,
    peer: PublicKey,
    preshared_key: Option<PresharedKey>,
    index: u32,
    /// The last initiation that was accepted: older ones are replays.
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

/// What a handshake message from the peer led to.
#[derive(Debug)]
pub(crate) enum Handshaken<'a> {
    /// We answer an initiation with this response; the session has this index.
    Respond { response: &'a [u8], local: u32 },
    /// A response completed our handshake; `keepalive` confirms the session to the peer.
    Complete { keepalive: &'a [u8], local: u32 },
    /// A cookie for the next attempt.
    Cookie,
}

/// A data message that authenticated.
#[derive(Debug)]
pub(crate) enum Opened {
    /// An empty one.
    Keepalive,
    /// An IP packet of this many bytes at the start of the buffer, padding cut off.
    Packet(usize),
    /// The contents are no IP packet, or shorter than it says.
    Malformed,
}

impl Noise {
    /// Does the Diffie-Hellman of the two static keys; `index` are 24 bits unique to the peer.
    ///
    /// `None` for a public key of low order: anybody could speak for such a peer.
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
            // Type and length were checked before, so this is about the contents.
            TunnResult::Err(WireGuardError::InvalidPacket) => Ok(Opened::Malformed),
            TunnResult::Err(WireGuardError::InvalidAeadTag) => Err(DropReason::InboundBadTag),
            TunnResult::Err(WireGuardError::DuplicateCounter) => Err(DropReason::InboundReplay),
            TunnResult::Err(WireGuardError::InvalidCounter) => Err(DropReason::InboundBehindWindow),
            _ => Err(DropReason::InboundUnknownSession),
        }
    }

    /// Writes a handshake initiation into `buffer`.
    pub(crate) fn initiate<'a>(&mut self, buffer: &'a mut [u8; CONTROL_BYTES]) -> Option<&'a [u8]> {
        // boringtun may begin the very handshake that is wanted: beginning another on top of it
        // would make it forget the one before, whose response may be on its way.
        if !self.update_timers(buffer) {
            self.begin_anew(buffer)?;
        }
        self.await_response(buffer);
        Some(&buffer[..])
    }

    /// The next local index that a handshake would get.
    pub(crate) fn next_index(&self) -> u32 {
        (self.index << 8) | (self.last.wrapping_add(1) & 0xff)
    }

    /// Uses up the next local index; `buffer` then holds an initiation with it.
    pub(crate) fn skip_index(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> Option<()> {
        self.begin_anew(buffer)?;
        self.last = index_at(buffer, 4);
        Some(())
    }

    /// Whether a response is awaited.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// No response is awaited any more.
    pub(crate) fn stop_awaiting(&mut self) {
        self.awaited = None;
    }

    /// The initiation in `buffer` is sent.
    pub(crate) fn await_response(&mut self, buffer: &[u8; CONTROL_BYTES]) {
        self.last = index_at(buffer, 4);
        self.awaited = Some(self.last);
    }

    fn begin_anew(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> Option<()> {
        let written = leave_no_trace(|| self.tunn.format_handshake_initiation(buffer, true));
        matches!(written, TunnResult::WriteToNetwork(_)).then_some(())
    }

    /// Returns whether boringtun has begun a handshake, whose initiation is in `buffer`.
    fn update_timers(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        let emitted = leave_no_trace(|| self.tunn.update_timers(&mut buffer[..]));
        matches!(emitted, TunnResult::WriteToNetwork(message) if message.len() == CONTROL_BYTES)
    }

    /// Handles an initiation, a response or a cookie reply.
    ///
    /// Only the response to the last initiation counts, as in the reference: the peer may have
    /// forgotten the session of one before.
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

    /// Whether boringtun still has a session to send with: 90 seconds into a handshake it wipes all.
    pub(crate) fn has_session(&self) -> bool {
        self.tunn.time_since_last_handshake().is_some()
    }

    /// Sessions are stamped by a clock that only `update_timers` sets; what that emits is its own
    /// idea of when to send, which the timers here decide instead.
    ///
    /// Returns whether it has begun a handshake of its own, whose initiation is in `buffer`.
    pub(crate) fn advance_clock(&mut self, buffer: &mut [u8; CONTROL_BYTES]) -> bool {
        let is_begun = self.update_timers(buffer);
        if is_begun {
            self.last = index_at(buffer, 4);
        }
        is_begun
    }

    /// The last initiation that was accepted.
    pub(crate) fn accepted(&self) -> Option<[u8; CONTROL_BYTES]> {
        self.accepted
    }

    /// The same without sessions, elsewhere in memory: boringtun leaves the keys of those that it
    /// ends where they are. It knows `accepted`, and all initiations before it, as replays.
    pub(crate) fn renewed(
        &self,
        identity: &Identity,
        accepted: Option<&[u8; CONTROL_BYTES]>,
    ) -> Option<Box<Self>> {
        let preshared_key = self.preshared_key.as_ref();
        let mut renewed =
            leave_no_trace(|| Self::new(identity, self.peer, preshared_key, self.index))?;
        if let Some(initiation) = accepted {
            // The answer goes nowhere, so nobody gets the keys of that session.
            let _ = renewed.handshake(initiation, &mut [0; CONTROL_BYTES]);
        }
        Some(renewed)
    }
}

/// The node's limiter has decided before a message comes to a peer; the peer's must not.
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
