//! Messages about paths, which travel inside the session of two peers.
//!
//! All begin with three bytes that are not an IP packet's, the version and the type. Numbers are big-endian. Probes and
//! their replies have one length, so that a reply is never longer than the probe.

use std::net::{IpAddr, SocketAddr};

use convoy_types::{Candidate, CandidateKind};
use thiserror::Error;

/// Most candidates that one side tells the other.
pub const MAX_CANDIDATES: usize = 8;
/// Longest message in bytes.
pub const MAX_MESSAGE: usize = HEADER + 10 + MAX_CANDIDATES * CANDIDATE;

/// Begins every message. The first four bits of an IP packet are 4 or 6: another peer drops it as malformed.
const MAGIC: [u8; 3] = [0xc0, b'v', b'y'];
const VERSION: u8 = 1;
const HEADER: usize = 5;
/// Longest candidate: its kind and its address.
const CANDIDATE: usize = 1 + ADDRESS;
/// Longest address: family, port and IPv6 address.
const ADDRESS: usize = 19;
/// Length of a probe and of its reply.
const PROBE: usize = HEADER + 8 + ADDRESS;

/// A message about paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Addresses of the sender.
    Candidates(Candidates),
    /// Says that the candidates of this generation have arrived.
    Received {
        /// Their generation.
        generation: u64,
    },
    /// Asks for a reply on the same path.
    Probe {
        /// Random number that the reply repeats.
        id: u64,
    },
    /// Answers a probe.
    Reply {
        /// The probe's number.
        id: u64,
        /// The source address of the probe as the replier saw it.
        observed: SocketAddr,
    },
    /// Says that the sender leaves the path: from now on it takes data by the hub only.
    Leave,
}

/// The addresses of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// A number that grows by one with each offer; its upper half is the sender's own, at random.
    pub generation: u64,
    /// Whether the sender asks for the other's candidates in return.
    pub is_request: bool,
    /// The candidates, [`MAX_CANDIDATES`] at most.
    pub list: Vec<Candidate>,
}

/// A message that this side does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidMessage {
    /// It does not begin as one.
    #[error("not a message about paths")]
    Foreign,
    /// It is of a version that this side does not know.
    #[error("unknown version {0}")]
    Version(u8),
    /// It is of a type that this side does not know.
    #[error("unknown type {0}")]
    Type(u8),
    /// It is shorter than it says, or a field has no meaning.
    #[error("malformed message")]
    Malformed,
}

impl Message {
    /// Appends the message to `buffer`; candidates beyond [`MAX_CANDIDATES`] are left out.
    pub fn write(&self, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.extend(MAGIC);
        buffer.push(VERSION);
        match self {
            Self::Candidates(candidates) => {
                buffer.push(1);
                buffer.extend(candidates.generation.to_be_bytes());
                buffer.push(candidates.is_request.into());
                let list = &candidates.list[..candidates.list.len().min(MAX_CANDIDATES)];
                buffer.push(list.len() as u8);
                for candidate in list {
                    buffer.push(number(candidate.kind));
                    write_address(candidate.address, buffer);
                }
            }
            Self::Received { generation } => {
                buffer.push(2);
                buffer.extend(generation.to_be_bytes());
            }
            Self::Probe { id } => {
                buffer.push(3);
                buffer.extend(id.to_be_bytes());
                buffer.resize(start + PROBE, 0);
            }
            Self::Reply { id, observed } => {
                buffer.push(4);
                buffer.extend(id.to_be_bytes());
                write_address(*observed, buffer);
                buffer.resize(start + PROBE, 0);
            }
            Self::Leave => buffer.push(5),
        }
    }

    /// Reads a message; whatever follows it is padding.
    ///
    /// # Errors
    /// [`InvalidMessage`] if this side does not understand it.
    pub fn read(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let mut rest = Reader(bytes);
        if rest.take::<3>() != Ok(MAGIC) {
            return Err(InvalidMessage::Foreign);
        }
        let [version, kind] = rest.take()?;
        if version != VERSION {
            return Err(InvalidMessage::Version(version));
        }
        match kind {
            1 => {
                let generation = u64::from_be_bytes(rest.take()?);
                let [flags, count] = rest.take()?;
                if usize::from(count) > MAX_CANDIDATES {
                    return Err(InvalidMessage::Malformed);
                }
                let list: Result<_, _> = (0..count).map(|_| rest.candidate()).collect();
                Ok(Self::Candidates(Candidates {
                    generation,
                    is_request: flags & 1 == 1,
                    list: list?,
                }))
            }
            2 => Ok(Self::Received {
                generation: u64::from_be_bytes(rest.take()?),
            }),
            3 if bytes.len() < PROBE => Err(InvalidMessage::Malformed),
            3 => Ok(Self::Probe {
                id: u64::from_be_bytes(rest.take()?),
            }),
            4 => Ok(Self::Reply {
                id: u64::from_be_bytes(rest.take()?),
                observed: rest.address()?,
            }),
            5 => Ok(Self::Leave),
            other => Err(InvalidMessage::Type(other)),
        }
    }
}

fn number(kind: CandidateKind) -> u8 {
    match kind {
        CandidateKind::Host => 1,
        CandidateKind::Mapped => 2,
        CandidateKind::Reflexive => 3,
        CandidateKind::Learnt => 4,
        CandidateKind::Relayed => 5,
    }
}

fn write_address(address: SocketAddr, buffer: &mut Vec<u8>) {
    buffer.push(if address.is_ipv4() { 4 } else { 6 });
    buffer.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(v4) => buffer.extend(v4.octets()),
        IpAddr::V6(v6) => buffer.extend(v6.octets()),
    }
}

/// Reads fields one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .ok_or(InvalidMessage::Malformed)?;
        self.0 = rest;
        Ok(*field)
    }

    fn candidate(&mut self) -> Result<Candidate, InvalidMessage> {
        let kind = match self.take()? {
            [1] => CandidateKind::Host,
            [2] => CandidateKind::Mapped,
            [3] => CandidateKind::Reflexive,
            [4] => CandidateKind::Learnt,
            [5] => CandidateKind::Relayed,
            _ => return Err(InvalidMessage::Malformed),
        };
        let address = self.address()?;
        Ok(Candidate { kind, address })
    }

    fn address(&mut self) -> Result<SocketAddr, InvalidMessage> {
        let [family] = self.take()?;
        let port = u16::from_be_bytes(self.take()?);
        let ip = match family {
            4 => IpAddr::from(self.take::<4>()?),
            6 => IpAddr::from(self.take::<16>()?),
            _ => return Err(InvalidMessage::Malformed),
        };
        Ok((ip, port).into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = SocketAddr> {
        let ips = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ];
        (ips, any::<u16>()).prop_map(SocketAddr::from)
    }

    fn candidates() -> impl Strategy<Value = Candidate> {
        let kinds = [
            CandidateKind::Host,
            CandidateKind::Mapped,
            CandidateKind::Reflexive,
            CandidateKind::Learnt,
            CandidateKind::Relayed,
        ];
        (prop::sample::select(kinds.to_vec()), addresses())
            .prop_map(|(kind, address)| Candidate { kind, address })
    }

    fn messages() -> impl Strategy<Value = Message> {
        let list = prop::collection::vec(candidates(), 0..=MAX_CANDIDATES);
        prop_oneof![
            (any::<u64>(), any::<bool>(), list).prop_map(|(generation, is_request, list)| {
                Message::Candidates(Candidates {
                    generation,
                    is_request,
                    list,
                })
            }),
            any::<u64>().prop_map(|generation| Message::Received { generation }),
            any::<u64>().prop_map(|id| Message::Probe { id }),
            (any::<u64>(), addresses()).prop_map(|(id, observed)| Message::Reply { id, observed }),
            Just(Message::Leave),
        ]
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written_whatever_the_padding(
            message in messages(),
            padding in 0usize..16,
        ) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            prop_assert!(bytes.len() <= MAX_MESSAGE);
            bytes.extend(std::iter::repeat_n(0, padding));
            prop_assert_eq!(Message::read(&bytes), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            is_framed in any::<bool>(),
            kind in 0u8..6,
        ) {
            let mut bytes = bytes;
            if is_framed {
                bytes.splice(0..0, [0xc0, b'v', b'y', 1, kind]);
            }
            if let Ok(message) = Message::read(&bytes) {
                let mut again = Vec::new();
                message.write(&mut again);
                prop_assert_eq!(Message::read(&again), Ok(message));
            }
        }

        #[test]
        fn a_message_that_ends_early_is_refused(message in messages(), cut in 1usize..200) {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            let is_padded = matches!(message, Message::Reply { observed, .. } if observed.is_ipv4());
            let end = bytes.len() - if is_padded { 12 } else { 0 };
            prop_assert!(Message::read(&bytes[..end.saturating_sub(cut)]).is_err());
        }
    }

    #[test]
    fn a_message_is_no_ip_packet_and_a_reply_is_as_long_as_its_probe() {
        let observed = "192.0.2.1:5".parse().unwrap();
        let lengths = [Message::Probe { id: 7 }, Message::Reply { id: 7, observed }].map(|it| {
            let mut bytes = Vec::new();
            it.write(&mut bytes);
            assert!(![4, 6].contains(&(bytes[0] >> 4)));
            bytes.len()
        });
        assert_eq!(lengths, [PROBE; 2]);
    }

    #[test]
    fn later_versions_and_types_are_told_from_garbage() {
        let read = |bytes: &[u8]| Message::read(bytes).unwrap_err();
        assert_eq!(read(&[0xc0, b'v', b'y', 2, 1]), InvalidMessage::Version(2));
        assert_eq!(read(&[0xc0, b'v', b'y', 1, 9]), InvalidMessage::Type(9));
        assert_eq!(read(&[0x45, 0, 0, 20]), InvalidMessage::Foreign);
        let many = [&[0xc0, b'v', b'y', 1, 1][..], &[0; 9], &[9]].concat();
        assert_eq!(read(&many), InvalidMessage::Malformed);
    }
}
