//! The responder's part: reads an initiation and writes the response (WireGuard paper §5.4.2, §5.4.3).

use std::time::Duration;

use convoy_types::PresharedKey;
use snow::HandshakeState;
use zeroize::Zeroizing;

use crate::{
    messages::{RESPONSE, index_at},
    peer_keys::PeerKeys,
    resolver::{PSK, Role, handshake},
    session::{Session, SessionKeys},
    tai64n::Tai64n,
    wipe::leave_no_trace,
};

/// An authentic initiation, which may still be a replay: check its timestamp.
pub struct Claim {
    /// The timestamp, which must exceed that of every earlier initiation.
    pub stamp: Tai64n,
    remote: u32,
    noise: Box<HandshakeState>,
}

impl Claim {
    /// Reads an initiation of the peer; `ephemeral` draws a key for the response. `None` if the message is
    /// not authentic.
    pub fn read(
        keys: &PeerKeys,
        initiation: &[u8],
        ephemeral: impl FnOnce() -> Option<Zeroizing<[u8; 32]>>,
    ) -> Option<Self> {
        leave_no_trace(|| {
            let mut noise = handshake(keys, Role::Responder, ephemeral()?).ok()?;
            let mut stamp = Tai64n::default();
            noise
                .read_message(initiation.get(8..116)?, &mut stamp.0)
                .ok()?;
            let is_of_peer = noise.get_remote_static() == Some(&keys.statics.peer.0);
            is_of_peer.then(|| Self {
                stamp,
                remote: index_at(initiation, 4),
                noise,
            })
        })
    }

    /// Writes the response, without its MACs, into `message`; returns the session.
    pub fn respond(
        self,
        local: u32,
        preshared_key: Option<&PresharedKey>,
        message: &mut [u8; RESPONSE],
        now: Duration,
    ) -> Option<Box<Session>> {
        let Self {
            remote, mut noise, ..
        } = self;
        message[..4].copy_from_slice(&[2, 0, 0, 0]);
        message[4..8].copy_from_slice(&local.to_le_bytes());
        message[8..12].copy_from_slice(&remote.to_le_bytes());
        leave_no_trace(|| {
            let key = preshared_key.map_or(&[0; 32], |key| &key.0);
            noise.set_psk(PSK, key).ok()?;
            noise.write_message(&[], &mut message[12..60]).ok()?;
            let (opening, sealing) = noise.dangerously_get_raw_split();
            let keys = SessionKeys { sealing, opening };
            Some(Session::new((local, remote), &keys, false, now))
        })
    }
}
