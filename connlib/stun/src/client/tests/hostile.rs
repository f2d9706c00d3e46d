//! Datagrams of strangers.

use proptest::prelude::*;

use super::*;
use crate::message::{request, transaction};

/// A client whose request is under way, and the answer to it.
fn asked() -> (World, Vec<u8>) {
    let world = World::started(&[(server(1), Does::Lose), (server(2), Does::Lose)]);
    let bytes = success(&world.sent[0].1.bytes, mapped(1));
    (world, bytes)
}

/// Requires that a datagram is refused, and that the true answer counts all the same.
fn must_ignore(mut world: World, from: SocketAddr, bytes: &[u8]) {
    let before = format!("{:?}", world.client);
    assert!(!world.client.handle_datagram(from, bytes, world.now));
    assert_eq!(format!("{:?}", world.client), before);
    let answer = success(&world.sent[0].1.bytes, mapped(1));
    assert!(world.client.handle_datagram(server(1), &answer, world.now));
    assert_eq!(world.addresses(), [mapped(1)]);
}

#[test]
fn an_answer_from_another_source_is_ignored() {
    let other_port = SocketAddr::new(server(1).ip(), 3479);
    for from in [other_port, server(2), server(9), address("[::1]:3478")] {
        let (world, bytes) = asked();
        must_ignore(world, from, &bytes);
    }
}

#[test]
fn a_source_is_the_same_however_the_socket_writes_it() {
    let (mut world, bytes) = asked();
    let from = address("[::ffff:198.51.100.1]:3478");
    assert!(world.client.handle_datagram(from, &bytes, world.now));
}

#[test]
fn an_answer_with_another_identifier_or_cookie_is_ignored() {
    for at in 4..20 {
        let (world, mut bytes) = asked();
        bytes[at] ^= 1;
        must_ignore(world, server(1), &bytes);
    }
}

#[test]
fn a_second_answer_is_ignored() {
    let (mut world, bytes) = asked();
    assert!(world.client.handle_datagram(server(1), &bytes, world.now));
    let other = success(&world.sent[0].1.bytes, mapped(2));
    assert!(!world.client.handle_datagram(server(1), &other, world.now));
    assert_eq!(world.addresses(), [mapped(1)]);
}

#[test]
fn a_binding_request_gets_no_answer() {
    // A server may mirror the client's own request.
    let (world, _) = asked();
    let own = world.sent[0].1.bytes;
    must_ignore(world, server(1), &own);
    let (mut world, _) = asked();
    let theirs = request(transaction([9; 12]));
    for from in [server(1), server(9)] {
        assert!(!world.client.handle_datagram(from, &theirs, world.now));
        assert_eq!(world.poll(), None);
    }
}

#[test]
fn an_indication_or_another_method_is_ignored() {
    for kind in [0x0011_u16, 0x0103, 0x0113, 0x0001] {
        let (world, mut bytes) = asked();
        bytes[..2].copy_from_slice(&kind.to_be_bytes());
        must_ignore(world, server(1), &bytes);
    }
}

#[test]
fn a_lying_server_does_not_make_the_client_ask_another_one_more_often() {
    let mut world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Lose),
    ]);
    world.servers.insert(server(2), Does::Answer(mapped(1)));
    world.run(10 * SECOND);
    for n in 0..60 {
        let lie = Does::Answer(mapped(n % 2));
        world.servers.insert(server(1), lie);
        world.run(20 * SECOND);
    }
    let to_the_honest = world.sent.iter().filter(|(_, it)| it.to == server(2));
    assert!(to_the_honest.count() <= 2 + 61);
}

proptest! {
    #[test]
    fn any_bytes_from_anywhere_change_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        from_server in any::<bool>(),
    ) {
        let (world, _) = asked();
        let from = if from_server { server(1) } else { server(9) };
        must_ignore(world, from, &bytes);
    }

    #[test]
    fn a_damaged_answer_leaves_a_usable_address_or_none(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut world, mut bytes) = asked();
        for (at, mask) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        world.client.handle_datagram(server(1), &bytes, world.now);
        let mut addresses = world.client.addresses();
        prop_assert!(addresses.all(is_usable));
    }
}
