//! Data indications (RFC 8656 §11.6): datagrams of peers that have a permission, but no channel.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Type of a Data indication, and the cookie of every STUN message (RFC 8489 §5).
const DATA_INDICATION: u16 = 0x0017;
const COOKIE: u32 = 0x2112_A442;
const STUN_HEADER_LEN: usize = 20;
/// Attributes (RFC 8656 §18).
const XOR_PEER_ADDRESS: u16 = 0x0012;
const DATA: u16 = 0x0013;
const FAMILY_IPV4: u8 = 1;
const FAMILY_IPV6: u8 = 2;

/// Reads the sender and the datagram out of a Data indication; `None` for anything else.
///
/// Nothing authenticates it, so whatever it brings must authenticate itself.
#[must_use]
pub fn parse_indication(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (header, mut rest) = bytes.split_first_chunk::<STUN_HEADER_LEN>()?;
    let is_indication = number(header) == Some(DATA_INDICATION)
        && number(&header[2..]).map(usize::from) == Some(rest.len())
        && header[4..8] == COOKIE.to_be_bytes();
    if !is_indication {
        return None;
    }
    let (mut sender, mut datagram) = (None, None);
    while !rest.is_empty() {
        let kind = number(rest)?;
        let len = usize::from(number(rest.get(2..)?)?);
        let value = rest.get(4..)?.get(..len)?;
        match kind {
            XOR_PEER_ADDRESS => sender = sender.or(Some(xor_address(value, header)?)),
            DATA => datagram = datagram.or(Some(value)),
            _ => {}
        }
        rest = rest.get(4 + len.next_multiple_of(4)..)?;
    }
    Some((sender?, datagram?))
}

/// Reads an address (RFC 8489 §14.2), which hides behind the cookie and the transaction identifier in `header`.
fn xor_address(value: &[u8], header: &[u8; STUN_HEADER_LEN]) -> Option<SocketAddr> {
    let (&[_, family, p0, p1], ip) = value.split_first_chunk()?;
    let port = u16::from_be_bytes([p0, p1]) ^ (COOKIE >> 16) as u16;
    match family {
        FAMILY_IPV4 => {
            let bits = u32::from_be_bytes(ip.try_into().ok()?) ^ COOKIE;
            Some((Ipv4Addr::from_bits(bits), port).into())
        }
        FAMILY_IPV6 => {
            let mask = u128::from_be_bytes(*header.last_chunk()?);
            let bits = u128::from_be_bytes(ip.try_into().ok()?) ^ mask;
            Some((Ipv6Addr::from_bits(bits), port).into())
        }
        _ => None,
    }
}

fn number(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|it| u16::from_be_bytes(*it))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use turn_client_proto::{
        stun::types::{
            message::{Message, MessageClass, MessageType, MessageWriteVec},
            prelude::{MessageWrite as _, MessageWriteExt as _},
        },
        types::{
            attribute::{Data, XorPeerAddress},
            message::DATA as METHOD,
        },
    };

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            is_framed in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if is_framed && bytes.len() >= STUN_HEADER_LEN {
                let len = (bytes.len() - STUN_HEADER_LEN) as u16;
                bytes[..2].copy_from_slice(&DATA_INDICATION.to_be_bytes());
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                bytes[4..8].copy_from_slice(&COOKIE.to_be_bytes());
            }
            if let Some((_, datagram)) = parse_indication(&bytes) {
                prop_assert!(datagram.len() < bytes.len());
            }
        }
    }

    /// A Data indication as the library writes it.
    fn indication(from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
        let transaction = 7_u128.into();
        let kind = MessageType::from_class_method(MessageClass::Indication, METHOD);
        let mut message = Message::builder(kind, transaction, MessageWriteVec::new());
        let from = XorPeerAddress::new(from, transaction);
        message.add_attribute(&from).unwrap();
        message.add_attribute(&Data::new(datagram)).unwrap();
        message.finish()
    }

    #[test]
    fn a_datagram_comes_back_from_its_indication_with_its_sender() {
        for from in ["203.0.113.7:51820", "[2001:db8::7]:51820"] {
            let from = from.parse().unwrap();
            for datagram in [&b""[..], b"a", b"abcd", b"abcdefg"] {
                let bytes = indication(from, datagram);
                assert_eq!(parse_indication(&bytes), Some((from, datagram)));
                for end in 0..bytes.len() {
                    assert_eq!(parse_indication(&bytes[..end]), None);
                }
            }
        }
    }

    #[test]
    fn other_messages_and_families_are_none() {
        let mut other = indication(([203, 0, 113, 7], 1).into(), b"a");
        for family in [0, 2, 3, 255] {
            other[STUN_HEADER_LEN + 5] = family;
            assert_eq!(parse_indication(&other), None, "{family}");
        }
        let mut request = indication(([203, 0, 113, 7], 1).into(), b"a");
        request[1] = 0x16;
        assert_eq!(parse_indication(&request), None, "a Send indication");
        request[1] = 0x17;
        request[4] ^= 1;
        assert_eq!(parse_indication(&request), None, "another cookie");
    }
}
