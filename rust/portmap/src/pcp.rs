//! Messages of PCP (RFC 6887): requests to map a UDP port, and their answers. Pure.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4},
    time::Duration,
};

use crate::{mapping::Grant, problem::Refusal};

/// The protocol's version.
const VERSION: u8 = 2;
/// The operation that asks for nothing (§14.1), and its answer.
const ANNOUNCE: u8 = 0;
const ANNOUNCE_ANSWER: u8 = 0x80 | ANNOUNCE;
/// The operation that maps a port (§11.1), and its answer.
const MAP: u8 = 1;
const MAP_ANSWER: u8 = 0x80 | MAP;
/// Length of a request, and of an answer without options, in bytes.
const LENGTH: usize = 60;
/// The number of UDP as a protocol of IP.
const UDP: u8 = 17;
/// Result codes (§7.4).
const SUCCESS: u8 = 0;
const UNSUPPORTED_VERSION: u8 = 1;

/// Writes a request that asks for nothing (§14.1).
pub(crate) fn announce(client: IpAddr) -> [u8; 24] {
    let client = match client {
        IpAddr::V4(client) => client.to_ipv6_mapped(),
        IpAddr::V6(client) => client,
    };
    let mut out = [0; 24];
    out[..2].copy_from_slice(&[VERSION, ANNOUNCE]);
    out[8..].copy_from_slice(&client.octets());
    out
}

/// Reads the answer to that; a router that refuses it speaks the protocol all the same.
pub(crate) fn announced(datagram: &[u8]) -> Option<Result<(), Refusal>> {
    match datagram {
        [VERSION, ANNOUNCE_ANSWER, _, result, ..] if *result != UNSUPPORTED_VERSION => Some(Ok(())),
        [_, op, _, _, ..] if op & 0x80 != 0 => Some(Err(Refusal::OtherProtocol)),
        _ => None,
    }
}

/// A request to map a UDP port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) client: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) nonce: [u8; 12],
    /// The address that would be best, as far as there is one.
    pub(crate) suggested: SocketAddrV4,
    /// Whole seconds; zero withdraws the mapping.
    pub(crate) lifetime: Duration,
}

impl Request {
    /// Writes the message (§7.1, §11.1).
    pub(crate) fn bytes(&self) -> [u8; LENGTH] {
        let mut out = [0; LENGTH];
        out[0] = VERSION;
        out[1] = MAP;
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        out[4..8].copy_from_slice(&seconds.to_be_bytes());
        out[8..24].copy_from_slice(&self.client.to_ipv6_mapped().octets());
        out[24..36].copy_from_slice(&self.nonce);
        out[36] = UDP;
        out[40..42].copy_from_slice(&self.port.to_be_bytes());
        out[42..44].copy_from_slice(&self.suggested.port().to_be_bytes());
        let suggested = self.suggested.ip().to_ipv6_mapped();
        out[44..60].copy_from_slice(&suggested.octets());
        out
    }

    /// Reads an answer; `None` if the datagram is none to this request.
    pub(crate) fn answer(&self, datagram: &[u8]) -> Option<Result<Grant, Refusal>> {
        let (version, result) = (*datagram.first()?, *datagram.get(3)?);
        if *datagram.get(1)? & 0x80 == 0 {
            return None;
        }
        // A router without PCP may answer as NAT-PMP does (RFC 6887 §9).
        if version != VERSION || result == UNSUPPORTED_VERSION {
            return Some(Err(Refusal::OtherProtocol));
        }
        let datagram: &[u8; LENGTH] = datagram.first_chunk()?;
        let is_answer = datagram[1] == MAP_ANSWER
            && datagram[24..36] == self.nonce
            && datagram[36] == UDP
            && datagram[40..42] == self.port.to_be_bytes();
        if !is_answer {
            return None;
        }
        if result != SUCCESS {
            return Some(Err(Refusal::Reason(reason(result))));
        }
        let [seconds @ .., _, _, _, _] = datagram[4..12].first_chunk::<8>()?;
        let external = datagram[44..60].first_chunk::<16>()?;
        let external = Ipv6Addr::from(*external).to_ipv4_mapped()?;
        let port = u16::from_be_bytes([datagram[42], datagram[43]]);
        Some(Ok(Grant {
            external: SocketAddrV4::new(external, port),
            lifetime: Duration::from_secs(u32::from_be_bytes(*seconds).into()),
        }))
    }
}

/// Words a result code (§7.4).
fn reason(result: u8) -> &'static str {
    match result {
        2 => "it is not allowed",
        3 | 6 => "it does not understand the request",
        4 | 5 | 9 => "it cannot forward UDP ports",
        7 => "it is not connected",
        8 => "it has no room",
        10 => "this machine has too many mappings",
        11 => "it cannot provide an address",
        12 => "another router is in between",
        _ => "it has another reason",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: Request = Request {
        client: Ipv4Addr::new(192, 168, 0, 2),
        port: 51820,
        nonce: [7; 12],
        suggested: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 51820),
        lifetime: Duration::from_secs(600),
    };

    #[test]
    fn a_request_is_as_the_rfc_has_it() {
        let mut expected = vec![2, 1, 0, 0, 0, 0, 2, 0x58];
        expected.extend([0; 10]);
        expected.extend([0xff, 0xff, 192, 168, 0, 2]);
        expected.extend([7; 12]);
        expected.extend([17, 0, 0, 0, 0xca, 0x6c, 0xca, 0x6c]);
        expected.extend([0; 10]);
        expected.extend([0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(REQUEST.bytes(), *expected);
    }

    #[test]
    fn an_answer_tells_the_address_outside_and_its_lifetime() {
        let grant = Grant {
            external: "198.51.100.7:4000".parse().unwrap(),
            lifetime: Duration::from_secs(120),
        };
        assert_eq!(REQUEST.answer(&answer(0)), Some(Ok(grant)));
        let mut with_option = answer(0).to_vec();
        with_option.extend([3, 0, 0, 0]);
        assert_eq!(REQUEST.answer(&with_option), Some(Ok(grant)));
    }

    #[test]
    fn a_refusal_says_why() {
        let not_allowed = Refusal::Reason("it is not allowed");
        assert_eq!(REQUEST.answer(&answer(2)), Some(Err(not_allowed)));
    }

    #[test]
    fn a_router_of_another_protocol_is_told_from_one_that_refuses() {
        let other = Some(Err(Refusal::OtherProtocol));
        assert_eq!(REQUEST.answer(&answer(1)), other);
        // As NAT-PMP refuses a version (RFC 6886 §3.5).
        assert_eq!(REQUEST.answer(&[0, 0x80, 0, 1, 0, 0, 0, 9]), other);
    }

    #[test]
    fn an_answer_to_another_request_is_ignored() {
        for (at, byte) in [(1, 1), (1, 0x82), (24, 8), (36, 6), (40, 0), (44, 1)] {
            let mut other = answer(0);
            other[at] = byte;
            assert_eq!(REQUEST.answer(&other), None, "{at}");
        }
        assert_eq!(REQUEST.answer(&answer(0)[..59]), None);
        assert_eq!(REQUEST.answer(&REQUEST.bytes()), None, "an echo");
        assert_eq!(REQUEST.answer(&[]), None);
    }

    proptest! {
        #[test]
        fn no_datagram_does_harm(datagram in prop::collection::vec(any::<u8>(), 0..70)) {
            let _ = REQUEST.answer(&datagram);
        }
    }

    fn answer(result: u8) -> [u8; LENGTH] {
        let mut answer = REQUEST.bytes();
        answer[1] = 0x81;
        answer[3] = result;
        answer[4..8].copy_from_slice(&120_u32.to_be_bytes());
        // The router's time, and bytes without a meaning.
        answer[8..24].copy_from_slice(&[9; 16]);
        answer[42..44].copy_from_slice(&4000_u16.to_be_bytes());
        answer[56..60].copy_from_slice(&[198, 51, 100, 7]);
        answer
    }
}
