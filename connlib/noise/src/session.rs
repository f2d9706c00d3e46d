//! One session: its two keys, counters and age (WireGuard paper §5.4.6, §6.2).
//!
//! Sealing has two steps, so that a batch can be sealed together: [`Session::reserve`] takes a counter,
//! which is never used again, and later the key encrypts with it. Opening has three:
//! [`ReplayWindow::check`], decryption with the key, and [`ReplayWindow::mark`].

use std::time::Duration;

use convoy_aead::{Aead, Key, Seal, SealInPlace};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{
    messages::{DATA_HEADER, DATA_OVERHEAD},
    replay_window::ReplayWindow,
};

/// Age from which the initiator begins a new handshake when it sends (WireGuard paper §6.1).
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// Age from which a session neither sends nor receives (§6.1).
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Sent messages after which a sender begins a new handshake (§6.1).
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Counter from which a session neither sends nor receives (§6.1).
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// The result of a handshake.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    /// Key of messages to the peer.
    pub sealing: [u8; 32],
    /// Key of messages from the peer.
    pub opening: [u8; 32],
}

/// A session with the peer.
pub struct Session {
    /// The index by which the peer addresses this session.
    pub local: u32,
    /// The index by which this side addresses it.
    pub remote: u32,
    /// When its keys were derived (time since boot).
    pub established: Duration,
    /// Whether this side began the handshake.
    pub is_initiator: bool,
    /// Whether the preshared key has changed since the handshake.
    pub is_former: bool,
    /// Key of messages to the peer.
    pub sealing: Key,
    /// The next message's counter.
    next: u64,
    /// Key of messages from the peer.
    pub opening: Key,
    /// Counters of messages from the peer.
    pub window: ReplayWindow,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:08x})", self.local)
    }
}

impl Session {
    /// A new session. Boxed, so that its keys are never moved and leave no copies.
    pub fn new(
        (local, remote): (u32, u32),
        keys: &SessionKeys,
        is_initiator: bool,
        now: Duration,
    ) -> Box<Self> {
        Box::new(Self {
            local,
            remote,
            established: now,
            is_initiator,
            is_former: false,
            sealing: Key::new(&keys.sealing),
            next: 0,
            opening: Key::new(&keys.opening),
            window: ReplayWindow::default(),
        })
    }

    /// Returns whether it is young enough to receive.
    #[must_use]
    pub fn is_alive(&self, now: Duration) -> bool {
        self.age(now) < REJECT_AFTER_TIME
    }

    /// Returns whether it may send, by its age and its counter.
    #[must_use]
    pub fn can_send(&self, now: Duration) -> bool {
        self.is_alive(now) && self.next < REJECT_AFTER_MESSAGES
    }

    /// Returns whether to begin a new handshake when sending now.
    pub fn wants_rekey(&self, now: Duration) -> bool {
        let too_many = self.next >= REKEY_AFTER_MESSAGES;
        let too_old = self.is_initiator && self.age(now) >= REKEY_AFTER_TIME;
        too_many || too_old
    }

    /// The time since its keys were derived.
    #[must_use]
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.established)
    }

    /// Takes the next counter; call only if [`Self::can_send`].
    pub fn reserve(&mut self) -> u64 {
        let counter = self.next;
        self.next += 1;
        counter
    }

    /// Writes the header of a data message with this counter to the start of `datagram`.
    pub fn write_header(&self, counter: u64, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&[4, 0, 0, 0]);
        datagram[4..8].copy_from_slice(&self.remote.to_le_bytes());
        datagram[8..DATA_HEADER].copy_from_slice(&counter.to_le_bytes());
    }

    /// Encrypts a single `packet` into `buffer`, with a counter reserved for it; returns the datagram.
    ///
    /// `None` if `buffer` is not at least [`DATA_OVERHEAD`] bytes longer than `packet`.
    pub fn seal<'a>(
        &self,
        aead: &Aead,
        counter: u64,
        packet: &[u8],
        buffer: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let datagram = buffer.get_mut(..packet.len() + DATA_OVERHEAD)?;
        self.write_header(counter, datagram);
        let sealed = &mut datagram[DATA_HEADER..];
        aead.seal(&mut [Seal::new(&self.sealing, counter, packet, sealed).ok()?]);
        Some(datagram)
    }

    /// Encrypts a single packet in place, with a counter reserved for it; returns the datagram.
    ///
    /// The packet lies in `datagram` where the encrypted one will, with [`DATA_OVERHEAD`] bytes around it.
    pub fn seal_in_place<'a>(
        &self,
        aead: &Aead,
        counter: u64,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        self.write_header(counter, datagram);
        let text = &mut datagram[DATA_HEADER..];
        aead.seal_in_place(&mut [SealInPlace::new(&self.sealing, counter, text).ok()?]);
        Some(datagram)
    }

    /// Decrypts one message into `slot`; returns the length of its packet if it is authentic.
    #[cfg(test)]
    pub fn open(&self, counter: u64, ciphertext: &[u8], slot: &mut [u8]) -> Option<usize> {
        let len = ciphertext.len() - convoy_aead::TAG;
        let open = convoy_aead::Open::new(&self.opening, counter, ciphertext, &mut slot[..len]);
        let opened = Aead::ring().open(&mut [open.ok()?]);
        opened.is_authentic(0).then_some(len)
    }

    /// Skips all counters below `counter`, as if as many messages had been sent.
    pub fn skip_to(&mut self, counter: u64) {
        self.next = self.next.max(counter);
    }
}

/// A session whose two keys are the same: it opens what it seals.
#[cfg(test)]
fn looped(local: u32, is_initiator: bool, now: Duration) -> Box<Session> {
    let keys = SessionKeys {
        sealing: [7; 32],
        opening: [7; 32],
    };
    Session::new((local, local), &keys, is_initiator, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(500);

    #[test]
    fn age_ends_a_session_after_the_initiator_wants_to_rekey() {
        let session = looped(1, true, T0);
        assert!(!session.wants_rekey(T0 + REKEY_AFTER_TIME - Duration::from_nanos(1)));
        assert!(session.wants_rekey(T0 + REKEY_AFTER_TIME));
        assert!(session.can_send(T0 + REJECT_AFTER_TIME - Duration::from_nanos(1)));
        assert!(!session.can_send(T0 + REJECT_AFTER_TIME));
        let responder = looped(1, false, T0);
        assert!(!responder.wants_rekey(T0 + REKEY_AFTER_TIME));
    }

    #[test]
    fn the_message_limits_end_a_session_whatever_the_role() {
        let mut session = looped(1, false, T0);
        session.skip_to(REKEY_AFTER_MESSAGES);
        assert!(session.wants_rekey(T0) && session.can_send(T0));
        session.skip_to(REJECT_AFTER_MESSAGES);
        assert!(!session.can_send(T0));
    }

    #[test]
    fn counters_are_reserved_once_and_sealing_may_wait() {
        let mut session = looped(1, true, T0);
        let reserved = [(); 3].map(|()| session.reserve());
        assert_eq!(reserved, [0, 1, 2]);
        let mut buffer = [0; 64];
        let (mut slot, mut seen) = ([0; 64], Vec::new());
        for counter in reserved.into_iter().rev() {
            let sealed = session.seal(&Aead::ring(), counter, &[9; 16], &mut buffer);
            let sealed = sealed.unwrap();
            assert_eq!(sealed[..8], [4, 0, 0, 0, 1, 0, 0, 0]);
            assert_eq!(sealed[8..16], counter.to_le_bytes());
            assert_eq!(session.open(counter, &sealed[16..], &mut slot), Some(16));
            assert_eq!(slot[..16], [9; 16]);
            let other = session.open(counter + 1, &sealed[16..], &mut slot);
            assert_eq!(other, None);
            seen.push(sealed.to_vec());
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_buffer_that_is_too_short_is_refused() {
        let session = looped(1, true, T0);
        assert_eq!(session.seal(&Aead::ring(), 0, &[0; 33], &mut [0; 64]), None);
    }
}
