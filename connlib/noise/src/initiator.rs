//! The initiator's part: writes an initiation and reads the response (WireGuard paper §5.4.2, §5.4.3).

use std::time::Duration;

use convoy_types::PresharedKey;
use snow::HandshakeState;
use zeroize::Zeroizing;

use crate::{
    messages::{INITIATION, index_at},
    peer_keys::PeerKeys,
    resolver::{PSK, Role, handshake},
    session::{Session, SessionKeys},
    tai64n::Tai64n,
    wipe::leave_no_trace,
};

/// An initiation that awaits its response.
pub struct Initiation {
    /// The local index, by which the response addresses it and later the peer the session.
    pub local: u32,
    /// The number of responses so far, none of them authentic.
    pub responses: u32,
    noise: Box<HandshakeState>,
}

impl std::fmt::Debug for Initiation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Initiation({:08x})", self.local)
    }
}

impl Initiation {
    /// Writes an initiation, without its MACs, into `message`.
    pub fn write(
        keys: &PeerKeys,
        local: u32,
        stamp: Tai64n,
        ephemeral: impl FnOnce() -> Option<Zeroizing<[u8; 32]>>,
        message: &mut [u8; INITIATION],
    ) -> Option<Self> {
        message[..4].copy_from_slice(&[1, 0, 0, 0]);
        message[4..8].copy_from_slice(&local.to_le_bytes());
        leave_no_trace(|| {
            let mut noise = handshake(keys, Role::Initiator, ephemeral()?).ok()?;
            noise.write_message(&stamp.0, &mut message[8..116]).ok()?;
            Some(Self {
                local,
                responses: 0,
                noise,
            })
        })
    }

    /// Reads the response with the present preshared key; returns the session, or `None` if the response is
    /// not authentic. Then an authentic one can still be read.
    pub fn complete(
        &mut self,
        response: &[u8],
        preshared_key: Option<&PresharedKey>,
        now: Duration,
    ) -> Option<Box<Session>> {
        let Self { local, noise, .. } = self;
        let remote = index_at(response, 4);
        leave_no_trace(|| {
            let key = preshared_key.map_or(&[0; 32], |key| &key.0);
            noise.set_psk(PSK, key).ok()?;
            let read = noise.read_message(response.get(12..60)?, &mut []);
            noise.set_psk(PSK, &[0; 32]).ok()?;
            read.ok()?;
            let (sealing, opening) = noise.dangerously_get_raw_split();
            let keys = SessionKeys { sealing, opening };
            Some(Session::new((*local, remote), &keys, true, now))
        })
    }
}
