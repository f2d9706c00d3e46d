//! MAC1, MAC2 and cookie replies, by boringtun (WireGuard paper §5.4.4 and §5.4.7).

use std::{net::IpAddr, time::Duration};

use boringtun::{
    noise::{Packet, Tunn, TunnResult, errors::WireGuardError, rate_limiter::RateLimiter},
    x25519,
};

use convoy_types::counters::DropReason;

/// How long a secret makes cookies. Afterwards it still checks them for as long: in all, as long as boringtun
/// keeps a secret. With one secret at a time, a cookie could end before the peer's next attempt.
const MAKING: Duration = Duration::from_secs(64);

/// Where an initiation and a response have their MAC2, from the end.
const MAC2: usize = 16;

/// Checks the MACs of handshake messages, and makes cookie replies.
pub(crate) struct Macs {
    public_key: x25519::PublicKey,
    /// Makes cookies with the latest secret.
    latest: RateLimiter,
    /// When it was made.
    since: Duration,
    /// Checks cookies of the secret before.
    former: Option<RateLimiter>,
}

impl Macs {
    pub(crate) fn new(public_key: &x25519::PublicKey) -> Self {
        Self {
            public_key: *public_key,
            latest: limiter(public_key),
            since: Duration::ZERO,
            former: None,
        }
    }

    /// Parses a message and checks its MAC1; returns whether its MAC2 is right, too. If it is not, makes a
    /// cookie reply, unless `reply` is empty.
    pub(crate) fn check<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        reply: &mut [u8],
    ) -> Result<(Packet<'a>, bool), DropReason> {
        match self.latest.verify_packet(Some(from), datagram, reply) {
            Ok(packet) => return Ok((packet, true)),
            Err(
                TunnResult::Err(WireGuardError::DestinationBufferTooSmall)
                | TunnResult::WriteToNetwork(_),
            ) => {}
            Err(TunnResult::Err(WireGuardError::InvalidMac)) => {
                return Err(DropReason::InboundBadMac);
            }
            Err(_) => return Err(DropReason::InboundNotWireGuard),
        }
        let is_former = || {
            let former = self.former.as_ref();
            former.is_some_and(|it| it.verify_packet(Some(from), datagram, &mut []).is_ok())
        };
        let has_mac2 = datagram.last_chunk() != Some(&[0; MAC2]) && is_former();
        let packet = Tunn::parse_incoming_packet(datagram);
        let packet = packet.map_err(|_| DropReason::InboundNotWireGuard)?;
        Ok((packet, has_mac2))
    }

    /// Changes the secret if it is due.
    pub(crate) fn renew_secret(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= MAKING {
            let latest = limiter(&self.public_key);
            self.former = Some(std::mem::replace(&mut self.latest, latest));
            self.since = now;
        }
    }
}

/// With a limit of 0 it is always "under load", and so always checks MAC2.
fn limiter(public_key: &x25519::PublicKey) -> RateLimiter {
    RateLimiter::new(public_key, 0)
}
