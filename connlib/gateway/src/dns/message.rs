//! Queries and answers as bytes: everything here is pure.

mod passed;

use hickory_resolver::{
    lookup::Lookup,
    net::{DnsError, NetError, NoRecords},
    proto::{
        op::{Edns, Message, OpCode, Query, ResponseCode},
        rr::{DNSClass, RecordType},
    },
};

use convoy_network::counters::Refusal;
pub(super) use passed::Response;

/// The header of every message (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
/// The longest answer in a datagram: no path of the internet fragments it (RFC 9715).
const LONGEST_DATAGRAM: u16 = 1232;
/// Without EDNS (RFC 1035, section 2.3.4).
const LONGEST_PLAIN_DATAGRAM: u16 = 512;

/// How a query has come, which limits the length of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A datagram.
    Udp,
    /// A connection.
    Tcp,
}

/// A query that can be looked up.
#[derive(Debug)]
pub(super) struct Question {
    id: u16,
    recursion_desired: bool,
    pub(super) query: Query,
    /// The longest answer that the client takes, if it speaks EDNS.
    edns: Option<u16>,
    dnssec: Dnssec,
    pub(super) over: Over,
}

/// Bits by which a client asks for DNSSEC.
#[derive(Clone, Copy, Debug, Default)]
struct Dnssec {
    /// DO: signatures are to be in the answer (RFC 3225).
    ok: bool,
    /// CD: the client validates (RFC 4035, section 3.2.2).
    checking_disabled: bool,
    /// AD: the client understands the bit in an answer (RFC 6840, section 5.7).
    authentic_data: bool,
}

/// A query that is not looked up, and what is said about it, if anything.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) reason: Refusal,
    pub(super) answer: Option<Vec<u8>>,
}

impl Question {
    /// Reads a query.
    ///
    /// Nothing is said to what is too short, or an answer itself: two servers could talk for ever.
    pub(super) fn read(bytes: &[u8], over: Over) -> Result<Self, Rejected> {
        let header = bytes.first_chunk::<HEADER>();
        let header = header.filter(|header| header[2] >> 7 == 0);
        let header = header.ok_or(Rejected {
            reason: Refusal::Malformed,
            answer: None,
        })?;
        let reject = |code, reason| Rejected {
            reason,
            answer: Some(bare(header, code)),
        };
        if header[2] >> 3 != u8::from(OpCode::Query) {
            return Err(reject(ResponseCode::NotImp, Refusal::Unsupported));
        }
        let malformed = || reject(ResponseCode::FormErr, Refusal::Malformed);
        // Read on only if there is one question (RFC 9619): memory for as many as it says would be allocated.
        if header[4..6] != [0, 1] {
            return Err(malformed());
        }
        let mut message = Message::from_vec(bytes).map_err(|_| malformed())?;
        let query = message.queries.pop().ok_or_else(malformed)?;
        let edns = message.edns.as_ref();
        let question = Self {
            id: message.metadata.id,
            recursion_desired: message.metadata.recursion_desired,
            query,
            edns: edns.map(Edns::max_payload),
            dnssec: Dnssec {
                ok: edns.is_some_and(|edns| edns.flags().dnssec_ok),
                checking_disabled: message.metadata.checking_disabled,
                authentic_data: message.metadata.authentic_data,
            },
            over,
        };
        let is_later_version = message.edns.is_some_and(|edns| edns.version() > 0);
        let code = match question.query.query_class() {
            _ if is_later_version => ResponseCode::BADVERS,
            _ if is_meta(question.query.query_type()) => ResponseCode::NotImp,
            DNSClass::IN => return Ok(question),
            _ => ResponseCode::Refused,
        };
        Err(Rejected {
            reason: Refusal::Unsupported,
            answer: Some(question.answer_without_records(code)),
        })
    }

    /// The answer that passes on what was found. If that is too long, it only says that it is truncated, and the client
    /// asks again over TCP.
    pub(super) fn answer(&self, found: Result<&Lookup, &NetError>) -> Vec<u8> {
        let found = match found {
            Ok(found) => found.message(),
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => return self.answer_nothing(none),
            // The server's own code may be about this host, not about the client.
            Err(_) => return self.answer_without_records(ResponseCode::ServFail),
        };
        let mut message = self.begin(found.metadata.response_code);
        message.answers.clone_from(&found.answers);
        message.authorities.clone_from(&found.authorities);
        message.additionals.clone_from(&found.additionals);
        self.encode(&message)
    }

    pub(super) fn answer_without_records(&self, code: ResponseCode) -> Vec<u8> {
        self.encode(&self.begin(code))
    }

    /// There is no such name, or it has no such records; for how long, the zone says (RFC 2308).
    fn answer_nothing(&self, none: &NoRecords) -> Vec<u8> {
        let mut message = self.begin(none.response_code);
        if let Some(soa) = &none.soa {
            let mut soa = soa.clone().into_record_of_rdata();
            soa.ttl = none.negative_ttl.map_or(soa.ttl, |ttl| ttl.min(soa.ttl));
            message.add_authority(soa);
        }
        self.encode(&message)
    }

    fn begin(&self, code: ResponseCode) -> Message {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.checking_disabled = self.dnssec.checking_disabled;
        message.metadata.response_code = code;
        message.add_query(self.query.clone());
        if self.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(LONGEST_DATAGRAM);
            edns.set_dnssec_ok(self.dnssec.ok);
            message.set_edns(edns);
        }
        message
    }

    /// The most bytes that an answer may have.
    fn longest(&self) -> usize {
        let longest = match (self.over, self.edns) {
            (Over::Tcp, _) => u16::MAX,
            (Over::Udp, Some(payload)) => payload.clamp(LONGEST_PLAIN_DATAGRAM, LONGEST_DATAGRAM),
            (Over::Udp, None) => LONGEST_PLAIN_DATAGRAM,
        };
        longest.into()
    }

    fn encode(&self, message: &Message) -> Vec<u8> {
        let longest = self.longest();
        let fits = |bytes: &Vec<u8>| bytes.len() <= longest && !is_truncated(bytes);
        let whole = message.to_vec().ok().filter(fits);
        let bytes = whole.or_else(|| message.truncate().to_vec().ok());
        bytes.unwrap_or_else(|| {
            let mut header = [0; HEADER];
            header[..2].copy_from_slice(&self.id.to_be_bytes());
            header[2] = u8::from(self.recursion_desired);
            bare(&header, ResponseCode::ServFail)
        })
    }
}

/// Returns whether the encoder has left out records, because more than 65,535 bytes are too many even for TCP.
fn is_truncated(message: &[u8]) -> bool {
    message.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// An answer without a question, to a query of which only the header is known.
fn bare(header: &[u8; HEADER], code: ResponseCode) -> Vec<u8> {
    let mut answer = vec![0; HEADER];
    answer[..2].copy_from_slice(&header[..2]);
    // It is an answer; operation and "recursion desired" are the client's.
    answer[2] = 0x80 | header[2] & 0x79;
    // Recursion is available.
    answer[3] = 0x80 | code.low();
    answer
}

/// Types that are no records: transfers of zones, and parts of messages (RFC 6895, section 3.1). ANY is passed on.
fn is_meta(kind: RecordType) -> bool {
    matches!(u16::from(kind), 0 | 41 | 128..=254)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
