use proptest::prelude::*;
use stun_types::{
    attribute::{ErrorCode, Fingerprint, RawAttribute},
    message::MessageWriteVec,
    prelude::MessageWriteExt,
};

use super::*;

const RANDOM: [u8; 12] = [0xa5; 12];

fn success() -> MessageWriteVec {
    let request = request(transaction(RANDOM));
    let request = Message::from_bytes(&request).unwrap();
    Message::builder_success(&request, MessageWriteVec::new())
}

fn answer_with(mapped: &str) -> MessageWriteVec {
    let mut answer = success();
    let mapped = XorMappedAddress::new(mapped.parse().unwrap(), transaction(RANDOM));
    answer.add_attribute(&mapped).unwrap();
    answer
}

#[test]
fn a_request_is_a_header_alone() {
    let bytes = request(transaction(RANDOM));
    assert_eq!(bytes[..8], [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]);
    assert_eq!(bytes[8..], RANDOM);
    assert!(looks_like_stun(&bytes));
    assert_eq!(answered(&bytes), None);
}

#[test]
fn an_answer_names_an_address_of_either_family() {
    for (named, expected) in [
        ("192.0.2.7:40000", "192.0.2.7:40000"),
        ("[2001:db8::7]:40000", "[2001:db8::7]:40000"),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7:1"),
    ] {
        let bytes = answer_with(named).finish();
        assert_eq!(answered(&bytes), Some(transaction(RANDOM)));
        assert_eq!(mapped_address(&bytes), Some(expected.parse().unwrap()));
    }
}

#[test]
fn an_address_that_nobody_has_is_refused() {
    for named in [
        "192.0.2.7:0",
        "0.0.0.0:1",
        "[::]:1",
        "[::ffff:0.0.0.0]:1",
        "224.0.0.1:1",
        "[ff02::1]:1",
        "255.255.255.255:1",
    ] {
        let bytes = answer_with(named).finish();
        assert_eq!(mapped_address(&bytes), None, "{named}");
    }
}

#[test]
fn what_an_answer_need_not_have_is_ignored() {
    let mut answer = answer_with("192.0.2.7:1");
    // SOURCE-ADDRESS and CHANGED-ADDRESS of old servers, and one that need not be understood.
    for kind in [0x0004, 0x0005, 0x80ff] {
        let extra = RawAttribute::new(kind.into(), &[0, 1, 0, 1, 192, 0, 2, 1]);
        answer.add_attribute(&extra).unwrap();
    }
    answer.add_fingerprint().unwrap();
    let bytes = answer.finish();
    assert!(mapped_address(&bytes).is_some());
}

#[test]
fn an_answer_without_what_it_must_have_is_none() {
    let address = "192.0.2.7:1".parse().unwrap();
    let mut plain = success();
    let mapped = RawAttribute::new(0x0001.into(), &[0, 1, 0, 1, 192, 0, 2, 7]);
    plain.add_attribute(&mapped).unwrap();
    let mut unknown = answer_with("192.0.2.7:1");
    let extra = RawAttribute::new(0x7fff.into(), &[1, 2, 3, 4]);
    unknown.add_attribute(&extra).unwrap();
    let mut damaged = answer_with("192.0.2.7:1");
    let wrong = Fingerprint::new([1, 2, 3, 4]);
    damaged.push_attribute_unchecked(&wrong);
    let request = request(transaction(RANDOM));
    let request = Message::from_bytes(&request).unwrap();
    let mut error = Message::builder_error(&request, MessageWriteVec::new());
    let mapped = XorMappedAddress::new(address, transaction(RANDOM));
    error.add_attribute(&mapped).unwrap();
    let code = ErrorCode::new(400, "Bad Request").unwrap();
    error.add_attribute(&code).unwrap();
    for (name, message) in [
        ("nothing", success()),
        ("MAPPED-ADDRESS alone", plain),
        ("an attribute that it must understand", unknown),
        ("a wrong fingerprint", damaged),
        ("an error", error),
    ] {
        let bytes = message.finish();
        assert_eq!(answered(&bytes), Some(transaction(RANDOM)), "{name}");
        assert_eq!(mapped_address(&bytes), None, "{name}");
    }
}

#[test]
fn an_answer_longer_than_a_packet_is_not_read() {
    for (len, is_read) in [(MAX_ANSWER, true), (MAX_ANSWER + 4, false)] {
        let mut bytes = success().finish();
        bytes.resize(len, 0);
        let body = (len - REQUEST_LEN) as u16;
        bytes[2..4].copy_from_slice(&body.to_be_bytes());
        assert!(looks_like_stun(&bytes));
        assert_eq!(answered(&bytes).is_some(), is_read, "{len}");
    }
}

#[test]
fn only_what_is_framed_as_stun_looks_like_it() {
    let good = answer_with("192.0.2.7:1").finish();
    assert!(looks_like_stun(&good));
    for (at, byte) in [(0, 0x41), (0, 0x81), (3, 8), (3, 13), (4, 0), (7, 0)] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert!(!looks_like_stun(&bytes), "{at} {byte}");
    }
    for len in 0..good.len() {
        assert!(!looks_like_stun(&good[..len]), "{len}");
    }
    let longer = [&good[..], &[0; 4]].concat();
    assert!(!looks_like_stun(&longer));
    // A length that is no multiple of four.
    let mut odd = [&good[..], &[0; 1]].concat();
    odd[3] += 1;
    assert!(!looks_like_stun(&odd));
}

proptest! {
    #[test]
    fn no_message_of_wireguard_looks_like_stun(
        kind in 1_u8..=4,
        body in prop::collection::vec(any::<u8>(), 28..200),
        has_cookie in any::<bool>(),
    ) {
        let mut bytes = [&[kind, 0, 0, 0], &body[..]].concat();
        if has_cookie {
            bytes[4..8].copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        }
        prop_assert!(!looks_like_stun(&bytes));
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        kind in prop_oneof![Just(0x0101_u16), Just(0x0111), any::<u16>()],
        mut body in prop::collection::vec(any::<u8>(), 0..400),
        kinds in prop::collection::vec(prop_oneof![Just(0x20_u16), Just(0x8028), Just(8), any::<u16>()], 8),
    ) {
        body.truncate(body.len() / 4 * 4);
        // Attributes of the right lengths reach deeper than random ones.
        for (attribute, kind) in body.chunks_exact_mut(12).zip(kinds) {
            attribute[..2].copy_from_slice(&kind.to_be_bytes());
            attribute[2..4].copy_from_slice(&8_u16.to_be_bytes());
        }
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(MAGIC_COOKIE.to_be_bytes());
        bytes.extend([0; 12]);
        bytes.extend(&body);
        let _ = (answered(&bytes), mapped_address(&bytes));
        let _ = (answered(&body), mapped_address(&body));
    }
}
