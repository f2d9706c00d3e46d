//! MAC1 and MAC2 of messages to a peer, and the cookie for MAC2 (WireGuard paper §5.4.4, §5.4.7).

use std::time::Duration;

use blake2::{
    Blake2s256, Blake2sMac, Digest,
    digest::{KeyInit, Mac, consts::U16},
};
use chacha20poly1305::{XChaCha20Poly1305, aead::AeadInOut};

use convoy_types::{PublicKey, counters::DropReason};

use crate::messages::MAC;

/// Lifetime of a received cookie: the other side accepts it for 120 s (paper §5.4.7), but the message takes
/// a while to arrive.
const COOKIE_TIME: Duration = Duration::from_secs(115);

/// The keys for MAC1 and for cookie replies, derived from the receiver's public key.
pub struct MacKeys {
    mac1: [u8; 32],
    cookie: [u8; 32],
}

impl MacKeys {
    /// The keys for messages to the owner of `receiver`.
    pub fn new(receiver: &PublicKey) -> Self {
        let labelled = |label: &[u8]| {
            let hash = Blake2s256::new_with_prefix(label).chain_update(receiver.0);
            hash.finalize().into()
        };
        Self {
            mac1: labelled(b"mac1----"),
            cookie: labelled(b"cookie--"),
        }
    }
}

/// The cookie that a peer has sent, if any.
#[derive(Default)]
pub struct Cookies {
    /// MAC1 of the last message; a cookie reply must answer it.
    last: Option<[u8; MAC]>,
    /// The cookie, and the time at which it arrived.
    cookie: Option<([u8; MAC], Duration)>,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies(…)")
    }
}

impl Cookies {
    /// Writes both MACs to the end of an initiation or a response; MAC2 is zero without a cookie.
    pub fn sign(&mut self, keys: &MacKeys, message: &mut [u8], now: Duration) {
        let (signed, mac2) = message.split_at_mut(message.len() - MAC);
        let (body, mac1) = signed.split_at_mut(signed.len() - MAC);
        let last = mac(&keys.mac1, body);
        mac1.copy_from_slice(&last);
        self.last = Some(last);
        self.cookie = self
            .cookie
            .filter(|(_, at)| now.saturating_sub(*at) < COOKIE_TIME);
        let second = self.cookie.map(|(cookie, _)| mac(&cookie, signed));
        mac2.copy_from_slice(&second.unwrap_or_default());
    }

    /// Takes the cookie from a reply to the last message; refuses a second reply as a replay.
    pub fn accept(
        &mut self,
        keys: &MacKeys,
        reply: &[u8],
        now: Duration,
    ) -> Result<(), DropReason> {
        let bad = DropReason::InboundBadHandshake;
        let (Some(nonce), Some(sealed)) = (reply[8..].first_chunk(), reply[32..].first_chunk())
        else {
            return Err(bad);
        };
        let last = self.last.ok_or(bad)?;
        let cookie = open(&keys.cookie, nonce, sealed, &last).ok_or(bad)?;
        self.last = None;
        self.cookie = Some((cookie, now));
        Ok(())
    }
}

fn mac(key: &[u8], message: &[u8]) -> [u8; MAC] {
    // INVARIANT: BLAKE2s takes keys of up to 32 bytes.
    let mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(key);
    mac.map_or_else(
        |_| [0; MAC],
        |mac| mac.chain_update(message).finalize().into_bytes().into(),
    )
}

fn open(key: &[u8; 32], nonce: &[u8; 24], sealed: &[u8; 32], mac1: &[u8]) -> Option<[u8; MAC]> {
    let (mut cookie, tag) = (*sealed.first_chunk::<MAC>()?, sealed.last_chunk::<16>()?);
    let text = (&mut cookie[..]).into();
    let cipher = XChaCha20Poly1305::new(key.into());
    let opened = cipher.decrypt_inout_detached(nonce.into(), mac1, text, tag.into());
    opened.ok().map(|()| cookie)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use boringtun::{
        noise::{TunnResult, rate_limiter::RateLimiter},
        x25519,
    };

    use super::*;

    const T0: Duration = Duration::from_secs(500);
    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A responder under load: boringtun's.
    struct Responder {
        limiter: RateLimiter,
        keys: MacKeys,
    }

    impl Responder {
        fn new() -> Self {
            let public = x25519::PublicKey::from(&x25519::StaticSecret::from([1; 32]));
            Self {
                limiter: RateLimiter::new(&public, 0),
                keys: MacKeys::new(&PublicKey(public.to_bytes())),
            }
        }

        /// Signs an initiation and returns the cookie reply to it; `None` if its MAC2 is right.
        fn answer_to(&self, cookies: &mut Cookies, now: Duration) -> Option<Vec<u8>> {
            let mut message = [9; 148];
            message[..4].copy_from_slice(&[1, 0, 0, 0]);
            cookies.sign(&self.keys, &mut message, now);
            match self
                .limiter
                .verify_packet(Some(FROM), &message, &mut [0; 64])
            {
                Ok(_) => None,
                Err(TunnResult::WriteToNetwork(reply)) => Some(reply.to_vec()),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_cookie_makes_mac2_right_for_two_minutes() {
        let (responder, mut cookies) = (Responder::new(), Cookies::default());
        let reply = responder.answer_to(&mut cookies, T0).unwrap();
        assert_eq!(cookies.accept(&responder.keys, &reply, T0), Ok(()));
        let just_before = T0 + COOKIE_TIME - Duration::from_nanos(1);
        assert_eq!(responder.answer_to(&mut cookies, just_before), None);
        assert!(
            responder
                .answer_to(&mut cookies, T0 + COOKIE_TIME)
                .is_some()
        );
    }

    #[test]
    fn only_the_first_reply_to_the_last_message_counts() {
        let (responder, mut cookies) = (Responder::new(), Cookies::default());
        let bad = Err(DropReason::InboundBadHandshake);
        let reply = responder.answer_to(&mut cookies, T0).unwrap();
        assert_eq!(Cookies::default().accept(&responder.keys, &reply, T0), bad);
        let mut forged = reply.clone();
        forged[40] ^= 1;
        assert_eq!(cookies.accept(&responder.keys, &forged, T0), bad);
        assert_eq!(cookies.accept(&responder.keys, &reply, T0), Ok(()));
        assert_eq!(cookies.accept(&responder.keys, &reply, T0), bad, "again");
        let mut other = [8; 148];
        cookies.sign(&responder.keys, &mut other, T0);
        assert_eq!(cookies.accept(&responder.keys, &reply, T0), bad);
    }
}
