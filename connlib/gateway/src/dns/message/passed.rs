//! Answers whose records pass as the server has sent them: signatures cover their bytes.

use hickory_resolver::proto::{
    op::{Edns, Message, ResponseCode},
    rr::RecordType,
    serialize::binary::BinEncodable as _,
};

use super::{HEADER, LONGEST_DATAGRAM, Question};

/// The type of the record of EDNS (RFC 6891, section 6.1.2).
const OPT: u16 = 41;
/// Types of records that DNSSEC has added: DS, RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM, CDS, CDNSKEY.
const OF_DNSSEC: [u16; 8] = [43, 46, 47, 48, 50, 51, 59, 60];
/// In the third byte of a header: it is an answer.
const ANSWER: u8 = 0x80;
const TRUNCATED: u8 = 2;
const RECURSION_DESIRED: u8 = 1;
/// In the fourth.
const RECURSION_AVAILABLE: u8 = 0x80;
const AUTHENTIC_DATA: u8 = 0x20;
const CHECKING_DISABLED: u8 = 0x10;
/// In the fifth byte behind the name of the record of EDNS: signatures are wanted.
const DNSSEC_OK: u8 = 0x80;

/// A server's answer, checked only as far as its bytes are changed.
#[derive(Debug)]
pub(in super::super) struct Response {
    bytes: Vec<u8>,
    /// Where its records begin.
    records: usize,
    /// Where the record of EDNS begins, behind its name.
    edns: Option<usize>,
}

impl Question {
    /// Returns whether the server's own bytes are to be the answer: the client asks for signatures or for the server's
    /// word on them, or for records of a type that is known by its number alone (RFC 3597).
    pub(in super::super) fn passes(&self) -> bool {
        let kind = self.query.query_type();
        let is_opaque = matches!(kind, RecordType::Unknown(_));
        let asks = self.dnssec.ok || self.dnssec.checking_disabled || self.dnssec.authentic_data;
        asks || is_opaque || OF_DNSSEC.contains(&u16::from(kind))
    }

    pub(in super::super) fn has_edns(&self) -> bool {
        self.edns.is_some()
    }

    pub(in super::super) fn wants_signatures(&self) -> bool {
        self.dnssec.ok
    }

    /// The query to a server. Its options are not the client's: they are between two hosts (RFC 6891, section 6.2.6),
    /// and one of them would tell where the client is.
    pub(in super::super) fn forwarded(&self, id: u16, with_edns: bool) -> Option<Vec<u8>> {
        let mut message = Message::query();
        message.metadata.id = id;
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = self.dnssec.checking_disabled;
        message.metadata.authentic_data = self.dnssec.authentic_data;
        message.add_query(self.query.clone());
        if with_edns {
            let mut edns = Edns::new();
            edns.set_max_payload(LONGEST_DATAGRAM);
            edns.set_dnssec_ok(self.dnssec.ok);
            message.set_edns(edns);
        }
        message.to_vec().ok()
    }

    /// The answer that consists of the server's records. Whether they are authentic is the server's word, never ours.
    pub(in super::super) fn pass(&self, response: &Response) -> Vec<u8> {
        let mut answer = response.bytes.clone();
        match response.edns {
            Some(at) => {
                answer[at + 2..at + 4].copy_from_slice(&LONGEST_DATAGRAM.to_be_bytes());
                set(&mut answer[at + 6], DNSSEC_OK, self.dnssec.ok);
            }
            None => self.append_edns(&mut answer),
        }
        let is_whole = answer.len() <= self.longest() && !response.is_truncated();
        if !is_whole {
            answer.truncate(response.records);
            answer[6..HEADER].fill(0);
            self.append_edns(&mut answer);
        }
        // The same letters as in the query, as some clients compare.
        if let Ok(question) = self.query.to_bytes() {
            answer[HEADER..response.records].copy_from_slice(&question);
        }
        answer[..2].copy_from_slice(&self.id.to_be_bytes());
        answer[2] = ANSWER;
        set(&mut answer[2], TRUNCATED, !is_whole);
        set(&mut answer[2], RECURSION_DESIRED, self.recursion_desired);
        // Others would not know what it means (RFC 6840, section 5.8).
        let understands = self.dnssec.ok || self.dnssec.authentic_data;
        let flags = &mut answer[3];
        *flags &= if understands && is_whole {
            0x0f | AUTHENTIC_DATA
        } else {
            0x0f
        };
        set(flags, RECURSION_AVAILABLE, true);
        set(flags, CHECKING_DISABLED, self.dnssec.checking_disabled);
        answer
    }

    /// Appends the record of EDNS, if the client speaks it.
    fn append_edns(&self, answer: &mut Vec<u8>) {
        if !self.has_edns() {
            return;
        }
        answer.push(0);
        answer.extend(OPT.to_be_bytes());
        answer.extend(LONGEST_DATAGRAM.to_be_bytes());
        let flags = if self.dnssec.ok { DNSSEC_OK } else { 0 };
        answer.extend([0, 0, flags, 0, 0, 0]);
        let count = u16::from_be_bytes([answer[10], answer[11]]);
        answer[10..HEADER].copy_from_slice(&count.saturating_add(1).to_be_bytes());
    }
}

fn set(flags: &mut u8, flag: u8, is_set: bool) {
    match is_set {
        true => *flags |= flag,
        false => *flags &= !flag,
    }
}

impl Response {
    /// Reads the answer to a query that was sent with this number; `None` if it is none, or nothing that can be passed on.
    pub(in super::super) fn read(
        mut bytes: Vec<u8>,
        question: &Question,
        id: u16,
        with_edns: bool,
    ) -> Option<Self> {
        let asked = question.query.to_bytes().ok()?;
        let records = HEADER + asked.len();
        let header = *bytes.first_chunk::<HEADER>()?;
        let is_answer = header[2] >> 3 == ANSWER >> 3 && header[..2] == id.to_be_bytes();
        let bare = |mut bytes: Vec<u8>| {
            bytes.truncate(records);
            bytes[6..HEADER].fill(0);
            let edns = None;
            Self {
                bytes,
                records,
                edns,
            }
        };
        let is_error_alone = header[4..6] == [0, 0] && header[3] & 0x0f != 0;
        if is_answer && is_error_alone {
            // Servers that cannot read a query do not repeat its question.
            bytes.truncate(HEADER);
            bytes.extend(asked);
            bytes[5] = 1;
            return Some(bare(bytes));
        }
        // Letters may differ in the name alone.
        let (name, kind_and_class) = bytes.get(HEADER..records)?.split_last_chunk::<4>()?;
        let repeats =
            asked.ends_with(kind_and_class) && asked[..asked.len() - 4].eq_ignore_ascii_case(name);
        if !is_answer || header[4..6] != [0, 1] || !repeats {
            return None;
        }
        if header[2] & TRUNCATED != 0 {
            // Its records may be cut anywhere.
            return Some(bare(bytes));
        }
        let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let (before, more) = (count(6) + count(8), count(10));
        let mut edns = None;
        let mut at = records;
        for index in 0..before + more {
            let (kind, begin, end) = record(&bytes, at)?;
            if kind == OPT {
                // One, at the root, among the additional records (RFC 6891, section 6.1.1).
                let is_right = edns.is_none() && index >= before && begin == at + 1;
                if !is_right {
                    return None;
                }
                if !with_edns {
                    // Nobody has asked for it; no record behind it can do without it.
                    let is_last = index + 1 == before + more;
                    bytes[10..HEADER].copy_from_slice(&(more as u16 - 1).to_be_bytes());
                    bytes.truncate(at);
                    return is_last.then_some(Self {
                        bytes,
                        records,
                        edns,
                    });
                }
                edns = Some(begin);
            }
            at = end;
        }
        bytes.truncate(at);
        Some(Self {
            bytes,
            records,
            edns,
        })
    }

    pub(in super::super) fn is_truncated(&self) -> bool {
        self.bytes[2] & TRUNCATED != 0
    }

    pub(in super::super) fn has_edns(&self) -> bool {
        self.edns.is_some()
    }

    /// Returns whether its server only refers to those of a zone, so that it looks no names up: there are some, and
    /// neither an answer nor a start of authority (RFC 2308, section 2.2).
    pub(in super::super) fn is_referral(&self) -> bool {
        let [_, _, _, _, _, _, 0, 0, high, low, ..] = self.bytes[..] else {
            return false;
        };
        let mut at = self.records;
        let authority = (0..u16::from_be_bytes([high, low])).map_while(|_| {
            let (kind, _, end) = record(&self.bytes, at)?;
            at = end;
            Some(RecordType::from(kind))
        });
        let authority: Vec<_> = authority.collect();
        let names_servers = authority.contains(&RecordType::NS);
        let is_error = self.code() != ResponseCode::NoError;
        !is_error && names_servers && !authority.contains(&RecordType::SOA)
    }

    pub(in super::super) fn code(&self) -> ResponseCode {
        // The upper bits are in the record of EDNS.
        let high = self.edns.map_or(0, |at| self.bytes[at + 4]);
        ResponseCode::from(high, self.bytes[3] & 0x0f)
    }
}

/// The record at an offset: its type, the end of its name, and its end.
fn record(bytes: &[u8], mut at: usize) -> Option<(u16, usize, usize)> {
    loop {
        let length = *bytes.get(at)?;
        match length >> 6 {
            0 => at += 1 + usize::from(length),
            // A pointer ends a name (RFC 1035, section 4.1.4).
            3 => at += 2,
            _ => return None,
        }
        if length == 0 || length >> 6 == 3 {
            break;
        }
    }
    let fixed = bytes.get(at..at + 10)?;
    let data = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let end = at + 10 + data;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    (end <= bytes.len()).then_some((kind, at, end))
}

#[cfg(test)]
mod tests;
