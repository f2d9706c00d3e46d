//! Both parts of a handshake against each other.

use std::time::Duration;

use convoy_aead::Aead;
use convoy_types::{PresharedKey, PrivateKey, PublicKey};
use zeroize::Zeroizing;

use crate::{
    Claim, Cookies, HandshakeLimiter, Identity, Initiation, MacKeys, PeerKeys, Screened, Session,
    Tai64n,
    messages::{INITIATION, RESPONSE},
};

const T0: Duration = Duration::from_secs(500);
const STAMP: Tai64n = Tai64n([7; 12]);

struct Side {
    identity: Identity,
    keys: Box<PeerKeys>,
}

/// The initiator and the responder.
fn sides() -> (Side, Side) {
    let [one, two] = [1, 2].map(|n| Identity::new(&PrivateKey([n; 32])));
    let keys = |own: &Identity, peer: &Identity| PeerKeys::new(own, peer.public_key());
    let (to_two, to_one) = (keys(&one, &two).unwrap(), keys(&two, &one).unwrap());
    let side = |identity, keys| Side { identity, keys };
    (side(one, to_two), side(two, to_one))
}

fn ephemeral(byte: u8) -> Zeroizing<[u8; 32]> {
    Zeroizing::new([byte; 32])
}

impl Side {
    fn initiate(&self, message: &mut [u8; INITIATION]) -> Initiation {
        Initiation::write(&self.keys, 11, STAMP, || Some(ephemeral(3)), message).unwrap()
    }

    fn respond(
        &self,
        initiation: &[u8; INITIATION],
        key: Option<&PresharedKey>,
    ) -> ([u8; RESPONSE], Box<Session>) {
        let claim = Claim::read(&self.keys, initiation, || Some(ephemeral(4))).unwrap();
        assert_eq!(claim.stamp, STAMP);
        let mut message = [0; RESPONSE];
        let session = claim.respond(22, key, &mut message, T0).unwrap();
        (message, session)
    }
}

fn carry(from: &Session, to: &Session) -> bool {
    let (mut buffer, mut slot) = ([0; 64], [0; 64]);
    let sealed = from.seal(&Aead::ring(), 0, &[9; 16], &mut buffer).unwrap();
    sealed[4..8] == to.local.to_le_bytes() && to.open(0, &sealed[16..], &mut slot) == Some(16)
}

#[test]
fn a_handshake_leads_to_a_session_that_carries_both_ways() {
    let key = PresharedKey([5; 32]);
    for key in [None, Some(&key)] {
        let (initiator, responder) = sides();
        let mut initiation = [0; INITIATION];
        let mut awaited = initiator.initiate(&mut initiation);
        let (response, theirs) = responder.respond(&initiation, key);
        let ours = awaited.complete(&response, key, T0).unwrap();
        assert!(carry(&ours, &theirs) && carry(&theirs, &ours));
        assert!(ours.is_initiator && !theirs.is_initiator);
    }
}

#[test]
fn no_bad_response_keeps_the_right_one_from_being_read() {
    let (initiator, responder) = sides();
    let mut initiation = [0; INITIATION];
    let mut awaited = initiator.initiate(&mut initiation);
    let key = PresharedKey([5; 32]);
    let (response, theirs) = responder.respond(&initiation, Some(&key));
    for at in [12, 43, 44, 59] {
        let mut forged = response;
        forged[at] ^= 1;
        assert!(awaited.complete(&forged, Some(&key), T0).is_none());
    }
    let mut of_low_order = response;
    of_low_order[12..44].fill(0);
    assert!(awaited.complete(&of_low_order, Some(&key), T0).is_none());
    assert!(awaited.complete(&response, None, T0).is_none());
    let ours = awaited.complete(&response, Some(&key), T0).unwrap();
    assert!(carry(&ours, &theirs));
}

#[test]
fn a_changed_initiation_is_not_authentic() {
    let (initiator, responder) = sides();
    let mut initiation = [0; INITIATION];
    initiator.initiate(&mut initiation);
    for at in [8, 39, 40, 87, 88, 115] {
        let mut forged = initiation;
        forged[at] ^= 1;
        assert!(Claim::read(&responder.keys, &forged, || Some(ephemeral(4))).is_none());
    }
}

#[test]
fn an_initiation_of_another_peer_is_refused() {
    let (initiator, responder) = sides();
    let mut initiation = [0; INITIATION];
    initiator.initiate(&mut initiation);
    let other = Identity::new(&PrivateKey([3; 32])).public_key();
    let keys = PeerKeys::new(&responder.identity, other).unwrap();
    assert!(Claim::read(&keys, &initiation, || Some(ephemeral(4))).is_none());
}

#[test]
fn the_first_cookie_after_a_long_calm_lives_as_long_as_any() {
    let (initiator, mut responder) = sides();
    let keys = MacKeys::new(&responder.identity.public_key());
    let mut limiter = HandshakeLimiter::default();
    let mut initiation = [0; INITIATION];
    initiator.initiate(&mut initiation);
    let mut screen_under_load = |cookies: &mut Cookies, now| {
        while !limiter.count(now) {}
        cookies.sign(&keys, &mut initiation, now);
        let from = [192, 0, 2, 1].into();
        let screened = responder
            .identity
            .screen(from, &initiation, Some(&mut limiter), now);
        screened.unwrap()
    };
    let mut cookies = Cookies::default();
    let Screened::AskForCookie(reply) = screen_under_load(&mut cookies, T0) else {
        panic!("a cookie reply should have come");
    };
    cookies.accept(&keys, &reply, T0).unwrap();
    let later = T0 + Duration::from_secs(110);
    let of_another = screen_under_load(&mut Cookies::default(), later);
    assert!(matches!(of_another, Screened::AskForCookie(_)));
    let again = screen_under_load(&mut cookies, later);
    assert!(matches!(again, Screened::Initiation(_)));
}

/// A public key of low order makes any Diffie-Hellman operation yield zero (RFC 7748 §6.1).
#[test]
fn an_ephemeral_key_of_low_order_is_refused() {
    let (initiator, responder) = sides();
    let mut initiation = [0; INITIATION];
    initiator.initiate(&mut initiation);
    for low_order in [0, 1] {
        initiation[8..40].fill(0);
        initiation[8] = low_order;
        assert!(Claim::read(&responder.keys, &initiation, || Some(ephemeral(4))).is_none());
        let mut key = [0; 32];
        key[0] = low_order;
        assert!(PeerKeys::new(&initiator.identity, PublicKey(key)).is_none());
    }
}
