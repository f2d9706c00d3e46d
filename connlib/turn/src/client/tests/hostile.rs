//! Servers and strangers that lie.

use proptest::prelude::*;
use turn_client_proto::{
    stun::types::{
        attribute::{MessageIntegrity, Nonce, Realm},
        message::Method,
        prelude::AttributeStaticType as _,
    },
    types::message::{ALLOCATE, CHANNEL_BIND},
};

use super::*;

#[test]
fn a_response_forged_by_somebody_who_saw_no_request_changes_nothing() {
    let mut world = World::with_peers(&[peer(1)]);
    let request = world.client.poll_transmit().unwrap();
    for class in [[0x01, 0x03], [0x01, 0x13]] {
        let mut forged = request.clone();
        forged[..2].copy_from_slice(&class);
        // Another transaction.
        forged[8] ^= 1;
        assert!(!world.client.handle_message(&forged, world.now));
    }
    let refusal = Message::builder_error(
        &Message::from_bytes(&request).unwrap(),
        MessageWriteVec::new(),
    );
    let mut refusal = with_code(refusal, ErrorCode::UNAUTHORIZED);
    refusal[8] ^= 1;
    assert!(!world.client.handle_message(&refusal, world.now));
    assert_eq!(world.client.phase(), Phase::Allocating);
    world.at_server(&request);
    world.run(Duration::from_secs(2));
    assert!(world.client.channel(peer(1)).is_some());
}

#[test]
fn a_message_that_answers_nothing_makes_the_client_do_nothing() {
    let mut world = World::with_peers(&[peer(1)]);
    let mut forged = world.client.poll_transmit().unwrap();
    forged[..2].copy_from_slice(&[0x01, 0x03]);
    forged[8] ^= 1;
    // The request is to be sent again, but by its timer alone: whatever a message costs, anybody can send many.
    let due = world.client.poll_timeout().unwrap();
    for message in [&forged[..], b"no STUN"] {
        assert!(!world.client.handle_message(message, due));
        assert_eq!(world.client.poll_transmit(), None);
    }
    world.client.handle_timeout(due);
    assert!(world.client.poll_transmit().is_some());
}

#[test]
fn a_success_without_the_right_password_gives_no_allocation() {
    let mut world = World::with_peers(&[peer(1)]);
    let mut requests = 0;
    while let Some(request) = world.client.poll_transmit() {
        requests += 1;
        let mut forged = request.clone();
        // An ALLOCATE success with the right transaction, and the request's attributes.
        forged[..2].copy_from_slice(&[0x01, 0x03]);
        world.client.handle_message(&forged, world.now);
        if requests == 1 {
            world.at_server(&request);
            world.serve();
        }
    }
    assert!(!matches!(world.client.phase(), Phase::Ready(_)));
}

#[test]
fn a_relayed_address_that_cannot_be_the_servers_is_refused() {
    let impossible = [
        "0.0.0.0:50001",
        "127.0.0.1:50001",
        "127.9.9.9:50001",
        "224.0.0.1:50001",
        "255.255.255.255:50001",
        "198.51.100.1:0",
        // The server's own port, and a peer's.
        "198.51.100.1:3478",
        "203.0.113.1:51820",
    ];
    for address in impossible {
        let mut world = World::new();
        world.gives = Some(address.parse().unwrap());
        world.client.set_peers(&[peer(1)], world.now).unwrap();
        world.run(Duration::from_millis(500));
        let phase = world.client.phase();
        assert_eq!(phase, Phase::Paused(Failure::Address), "{address}");
        assert_eq!(world.at_peers, []);
        // The server mends its ways, and has no allocation left over.
        world.gives = None;
        world.run(Duration::from_secs(2));
        world.must_reach(peer(1));
    }
}

#[test]
fn one_impossible_address_of_two_is_enough_to_refuse_both() {
    for address in ["[2001:db8::1]:51820", "[fe80::1]:50001", "[::1]:50001"] {
        let mut world = World::new();
        world.gives = Some(address.parse().unwrap());
        world.has = Families::V6;
        let peers = [peer(1), peer_v6()];
        world.client.set_peers(&peers, world.now).unwrap();
        world.run(Duration::from_millis(500));
        let phase = world.client.phase();
        assert_eq!(phase, Phase::Paused(Failure::Address), "{address}");
        assert_eq!(world.at_peers, []);
    }
}

#[test]
fn an_address_that_its_owner_knows_better_is_given_back() {
    let mut world = World::ready();
    world.client.reject_address(world.now);
    world.exchange();
    assert_eq!(world.client.phase(), Phase::Paused(Failure::Address));
    assert_eq!(world.client.channel(peer(1)), None);
    world.run(Duration::from_secs(2));
    world.must_reach(peer(1));
    // There is nothing to reject without an allocation.
    world.client.end(world.now);
    world.client.reject_address(world.now);
    assert_eq!(world.client.phase(), Phase::Ended);
}

#[test]
fn a_server_on_this_host_may_give_addresses_of_this_host() {
    let mut server = Server {
        address: SocketAddr::from(([127, 0, 0, 1], 3478)),
        transport: Transport::Udp,
    };
    assert!(server.may_give(SocketAddr::from(([127, 0, 0, 1], 50_000))));
    server.address.set_ip("::ffff:127.0.0.1".parse().unwrap());
    assert!(server.may_give(SocketAddr::from(([127, 0, 0, 1], 50_000))));
    server.address.set_ip([198, 51, 100, 1].into());
    for address in [
        "[::]:1",
        "[::1]:1",
        "[ff02::1]:1",
        "[fe80::1]:1",
        "[::ffff:127.0.0.1]:1",
        "[::ffff:198.51.100.1]:1",
    ] {
        assert!(!server.may_give(address.parse().unwrap()), "{address}");
    }
}

/// The answer of a server that serves no request of some method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The nonce is stale, and here is another.
    NewNonce,
    /// The nonce is stale, and here is the same.
    SameNonce,
    /// The nonce is stale.
    NoNonce,
    /// None, once it has told the nonce.
    Silence,
}

impl Refusal {
    /// The answer to the `nth` request.
    fn answer(self, request: &Message<'_>, nth: usize) -> Option<Vec<u8>> {
        let is_signed = request.has_attribute(MessageIntegrity::TYPE);
        let code = match (self, is_signed) {
            (Self::Silence, true) => return None,
            (_, true) => ErrorCode::STALE_NONCE,
            (_, false) => ErrorCode::UNAUTHORIZED,
        };
        let mut refusal = Message::builder_error(request, MessageWriteVec::new());
        if self != Self::NoNonce || !is_signed {
            let nonce = match self {
                Self::NewNonce => Nonce::new(&format!("nonce {nth}")),
                _ => Nonce::new("nonce"),
            };
            let realm = Realm::new("example.org").unwrap();
            refusal.add_attribute(&realm).unwrap();
            refusal.add_attribute(&nonce.unwrap()).unwrap();
        }
        Some(with_code(refusal, code))
    }
}

/// Lets a server refuse requests of a method, each after a while. Returns the failure for which the client gives it up
/// within a time in which all but one request may be repeated.
fn given_up(refused: Method, refusal: Refusal, round_trip: Duration) -> Option<Failure> {
    let mut world = World::with_peers(&[peer(1)]);
    let mut replies = VecDeque::new();
    let mut sent = 0;
    while world.now < START + Duration::from_secs(10) {
        while let Some(request) = world.client.poll_transmit() {
            sent += 1;
            let message = Message::from_bytes(&request).unwrap();
            if message.method() != refused {
                world.at_server(&request);
            } else if let Some(reply) = refusal.answer(&message, sent) {
                replies.push_back((world.now + round_trip, reply));
            }
            world.serve();
        }
        if let Phase::Paused(failure) = world.client.phase() {
            return Some(failure);
        }
        let arrival = replies.front().map(|(at, _)| *at);
        let due = [arrival, world.client.poll_timeout()];
        world.now = due.into_iter().flatten().min()?.max(world.now);
        match replies.pop_front_if(|(at, _)| *at <= world.now) {
            Some((_, reply)) => {
                world.client.handle_message(&reply, world.now);
            }
            None => world.client.handle_timeout(world.now),
        }
    }
    None
}

#[test]
fn a_server_that_serves_no_request_has_failed_soon_whatever_it_answers() {
    use Refusal::{NewNonce, NoNonce, SameNonce, Silence};
    for method in [ALLOCATE, CHANNEL_BIND] {
        for refusal in [NewNonce, SameNonce, NoNonce, Silence] {
            for milliseconds in [0, 20, 300, 2_000] {
                let round_trip = Duration::from_millis(milliseconds);
                let failure = given_up(method, refusal, round_trip);
                // The last answer may come too late.
                let expected = [Failure::Silent, Failure::Refused(438)];
                assert!(
                    failure.is_some_and(|it| expected.contains(&it)),
                    "{method} {refusal:?} {round_trip:?}: {failure:?}"
                );
            }
        }
    }
}

fn with_code(mut message: MessageWriteVec, code: u16) -> Vec<u8> {
    let code = ErrorCode::builder(code).build().unwrap();
    message.add_attribute(&code).unwrap();
    message.finish()
}

proptest! {
    #[test]
    fn no_message_of_the_server_makes_the_client_panic_or_spin(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        which in 0_usize..12,
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut world = World::with_peers(&[peer(1), peer_v6()]);
        for n in 0..12 {
            let Some(request) = world.client.poll_transmit() else {
                world.now += Duration::from_millis(50);
                world.client.handle_timeout(world.now);
                continue;
            };
            let transmit = Transmit::new(
                request,
                TransportType::Udp,
                world.client_address,
                world.server_address,
            );
            let reply = world.server.recv(transmit, instant(world.now));
            let mut replies: Vec<_> = reply.into_iter().map(|it| it.data.build()).collect();
            if replies.is_empty() {
                // An allocation needs a socket first.
                world.serve();
                continue;
            }
            if n == which {
                for reply in &mut replies {
                    for (at, value) in &flips {
                        let at = at.index(reply.len());
                        reply[at] = *value;
                    }
                    if cuts {
                        reply.truncate(cut.index(reply.len()));
                    }
                }
            }
            for reply in replies {
                world.client.handle_message(&reply, world.now);
            }
        }
        world.run(Duration::from_secs(600));
        prop_assert!(world.client.channel(peer(1)).is_some(), "{:?}", world.events);
    }

    #[test]
    fn garbage_answers_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut world = World::ready();
        prop_assert!(!world.client.handle_message(&bytes, world.now));
        prop_assert!(world.client.channel(peer(1)).is_some());
    }
}

#[test]
fn no_state_of_a_client_prints_the_password() {
    let mut world = World::with_peers(&[peer(1)]);
    for _ in 0..20 {
        let printed = format!("{:?} {:#?}", world.client, world.client);
        assert!(!printed.contains("secret"), "{printed}");
        world.run(Duration::from_millis(100));
    }
    assert!(matches!(world.client.phase(), Phase::Ready(_)));
    world.client.handle_closed(world.now);
    assert!(!format!("{:?}", world.client).contains("secret"));
}
