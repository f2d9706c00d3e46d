//! Messages of NAT-PMP (RFC 6886): requests for the router's address and to map a port, and their answers. Pure.

use std::{net::Ipv4Addr, time::Duration};

use crate::{mapping::Transport, problem::Refusal};

/// The request for the router's address outside (§3.2).
pub(crate) const ADDRESS_REQUEST: [u8; 2] = [VERSION, ADDRESS];
/// The port of this machine in requests for whichever port a provider has; its answers may have 0 there.
pub(crate) const ANY_PORT: u16 = 1;

const VERSION: u8 = 0;
/// Operations; their answers have [`ANSWER`] added.
const ADDRESS: u8 = 0;
const MAP_UDP: u8 = 1;
const MAP_TCP: u8 = 2;
const ANSWER: u8 = 0x80;
/// Result codes (§3.5).
const SUCCESS: u16 = 0;
const UNSUPPORTED_VERSION: u16 = 1;

/// Reads the router's address; `None` if the datagram is none that tells it.
pub(crate) fn address(datagram: &[u8]) -> Option<Result<Ipv4Addr, Refusal>> {
    if let Err(refusal) = result(datagram, ADDRESS)? {
        return Some(Err(refusal));
    }
    let address = datagram.get(8..12)?.first_chunk::<4>()?;
    Some(Ok(Ipv4Addr::from(*address)))
}

/// A request to map a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) transport: Transport,
    pub(crate) port: u16,
    /// The port outside that would be best.
    pub(crate) suggested: u16,
    /// Whole seconds; zero, with no suggestion, withdraws the mapping.
    pub(crate) lifetime: Duration,
}

impl Request {
    /// Writes the message (§3.3).
    pub(crate) fn bytes(&self) -> [u8; 12] {
        let mut out = [0; 12];
        out[0] = VERSION;
        out[1] = self.operation();
        out[4..6].copy_from_slice(&self.port.to_be_bytes());
        out[6..8].copy_from_slice(&self.suggested.to_be_bytes());
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        out[8..12].copy_from_slice(&seconds.to_be_bytes());
        out
    }

    /// Reads the port outside and its lifetime; `None` if the datagram is no answer to this request.
    pub(crate) fn answer(&self, datagram: &[u8]) -> Option<Result<(u16, Duration), Refusal>> {
        if let Err(refusal) = result(datagram, self.operation())? {
            return Some(Err(refusal));
        }
        let internal = u16::from_be_bytes(*datagram.get(8..10)?.first_chunk::<2>()?);
        let is_any = self.port == ANY_PORT && internal == 0;
        if internal != self.port && !is_any {
            return None;
        }
        let external = datagram.get(10..12)?.first_chunk::<2>()?;
        let seconds = datagram.get(12..16)?.first_chunk::<4>()?;
        let lifetime = Duration::from_secs(u32::from_be_bytes(*seconds).into());
        Some(Ok((u16::from_be_bytes(*external), lifetime)))
    }

    fn operation(&self) -> u8 {
        match self.transport {
            Transport::Udp => MAP_UDP,
            Transport::Tcp => MAP_TCP,
        }
    }
}

/// Reads the head of an answer; `None` if it is none to this operation.
fn result(datagram: &[u8], operation: u8) -> Option<Result<(), Refusal>> {
    let [version, op, high, low, ..] = datagram else {
        return None;
    };
    let result = u16::from_be_bytes([*high, *low]);
    let is_answer = *op == operation | ANSWER;
    match (*version, result) {
        _ if *op & ANSWER == 0 => None,
        (VERSION, UNSUPPORTED_VERSION) => Some(Err(Refusal::OtherProtocol)),
        (VERSION, _) if !is_answer => None,
        (VERSION, SUCCESS) => Some(Ok(())),
        (VERSION, result) => Some(Err(Refusal::Reason(reason(result)))),
        _ => Some(Err(Refusal::OtherProtocol)),
    }
}

/// Words a result code (§3.5).
fn reason(result: u16) -> &'static str {
    match result {
        2 => "it is not allowed",
        3 => "it is not connected",
        4 => "it has no room",
        5 => "it cannot forward such ports",
        _ => "it has another reason",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: Request = Request {
        transport: Transport::Udp,
        port: 51820,
        suggested: 51821,
        lifetime: Duration::from_secs(600),
    };
    const GRANTED: [u8; 16] = [
        0, 0x81, 0, 0, 0, 0, 0, 9, 0xca, 0x6c, 0x0f, 0xa0, 0, 0, 0, 120,
    ];

    #[test]
    fn requests_are_as_the_rfc_has_them() {
        assert_eq!(ADDRESS_REQUEST, [0, 0]);
        let expected = [0, 1, 0, 0, 0xca, 0x6c, 0xca, 0x6d, 0, 0, 2, 0x58];
        assert_eq!(REQUEST.bytes(), expected);
    }

    #[test]
    fn answers_tell_the_address_and_the_port_outside() {
        let told = address(&[0, 0x80, 0, 0, 0, 0, 0, 9, 198, 51, 100, 7]);
        assert_eq!(told, Some(Ok([198, 51, 100, 7].into())));
        let granted = (4000, Duration::from_secs(120));
        assert_eq!(REQUEST.answer(&GRANTED), Some(Ok(granted)));
    }

    #[test]
    fn a_refusal_says_why_in_as_few_bytes_as_there_are() {
        let not_allowed = Some(Err(Refusal::Reason("it is not allowed")));
        assert_eq!(REQUEST.answer(&[0, 0x81, 0, 2]), not_allowed);
        assert_eq!(
            address(&[0, 0x80, 0, 3, 0, 0, 0, 0]).unwrap().unwrap_err(),
            Refusal::Reason("it is not connected")
        );
        let other = Some(Err(Refusal::OtherProtocol));
        assert_eq!(REQUEST.answer(&[0, 0x81, 0, 1]), other);
        assert_eq!(REQUEST.answer(&[2, 0x81, 0, 1]), other);
    }

    #[test]
    fn an_answer_to_another_request_is_ignored() {
        for (at, byte) in [(1, 1), (1, 0x80), (1, 0x82), (8, 0)] {
            let mut other = GRANTED;
            other[at] = byte;
            assert_eq!(REQUEST.answer(&other), None, "{at}");
        }
        for length in 0..GRANTED.len() {
            assert_eq!(REQUEST.answer(&GRANTED[..length]), None, "{length}");
        }
        assert_eq!(address(&GRANTED), None);
    }

    #[test]
    fn a_provider_may_leave_this_machines_port_out_of_its_answer() {
        let request = Request {
            transport: Transport::Tcp,
            port: ANY_PORT,
            ..REQUEST
        };
        assert_eq!(request.bytes()[..6], [0, 2, 0, 0, 0, 1]);
        let mut answer = GRANTED;
        answer[1] = 0x82;
        let granted = Some(Ok((4000, Duration::from_secs(120))));
        for (port, read) in [(0, granted), (1, granted), (2, None)] {
            answer[8..10].copy_from_slice(&[0, port]);
            assert_eq!(request.answer(&answer), read, "{port}");
        }
    }

    proptest! {
        #[test]
        fn no_datagram_does_harm(datagram in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = (REQUEST.answer(&datagram), address(&datagram));
        }
    }
}
