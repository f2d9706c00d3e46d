use hickory_resolver::{
    net::NoRecords,
    proto::{
        op::MessageType,
        rr::{
            Name, RData, Record,
            rdata::{A, SOA},
        },
    },
};
use proptest::{collection::vec, prelude::*};

use super::*;

#[test]
fn a_query_is_read_and_its_answer_repeats_it() {
    let mut query = query("Www.eXample.");
    query.metadata.recursion_desired = true;
    let question = read(&query, Over::Udp).unwrap();
    assert_eq!(question.query.query_type(), RecordType::A);
    let answer = parsed(&question.answer(Ok(&found(&question, 2))));
    assert_eq!(answer.metadata.id, query.metadata.id);
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    assert!(answer.metadata.recursion_desired && answer.metadata.recursion_available);
    assert!(!answer.metadata.authoritative && !answer.metadata.truncation);
    // Letter by letter, as some clients compare.
    assert_eq!(answer.queries[0].name().to_string(), "Www.eXample.");
    assert_eq!(answer.answers.len(), 2);
    assert_eq!(answer.edns, None);
}

#[test]
fn an_answer_is_as_long_as_its_client_takes_and_the_path_carries() {
    let fits = |payload: Option<u16>, over, count: usize| {
        let mut query = query(".");
        if let Some(payload) = payload {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            query.set_edns(edns);
        }
        let question = read(&query, over).unwrap();
        let bytes = question.answer(Ok(&found(&question, count)));
        let answer = parsed(&bytes);
        assert_eq!(answer.edns.is_some(), payload.is_some());
        assert_eq!(answer.queries.len(), 1);
        let expected = if answer.metadata.truncation { 0 } else { count };
        assert_eq!(answer.answers.len(), expected);
        !answer.metadata.truncation
    };
    // A header, a question of 5 bytes, and 15 bytes for each record; EDNS takes 11.
    assert!(fits(None, Over::Udp, 33) && !fits(None, Over::Udp, 34));
    assert!(fits(Some(0), Over::Udp, 32) && !fits(Some(0), Over::Udp, 33));
    assert!(fits(Some(800), Over::Udp, 51) && !fits(Some(800), Over::Udp, 52));
    assert!(fits(Some(1232), Over::Udp, 80) && !fits(Some(4096), Over::Udp, 81));
    assert!(fits(None, Over::Tcp, 4367) && !fits(None, Over::Tcp, 4368));
}

#[test]
fn a_name_without_records_is_answered_with_the_zones_word_for_how_long() {
    for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
        let question = read(&query("gone.example."), Over::Udp).unwrap();
        let zone = Name::from_ascii("example.").unwrap();
        let soa = SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, 60);
        let mut none = NoRecords::new(question.query.clone(), code);
        none.soa = Some(Box::new(Record::from_rdata(zone, 300, soa)));
        none.negative_ttl = Some(42);
        let answer = parsed(&question.answer(Err(&none.clone().into())));
        assert_eq!(answer.metadata.response_code, code);
        assert_eq!(answer.authorities[0].record_type(), RecordType::SOA);
        assert_eq!(answer.authorities[0].ttl, 42);
        none.soa = None;
        let answer = parsed(&question.answer(Err(&none.into())));
        assert!(answer.authorities.is_empty() && answer.answers.is_empty());
    }
}

#[test]
fn what_is_no_query_for_records_is_answered_by_its_reason() {
    let of_kind = |kind| {
        let mut query = query("example.");
        query.queries[0].set_query_type(kind);
        query
    };
    let mut update = query("example.");
    update.metadata.op_code = OpCode::Notify;
    let mut chaos = query("version.bind.");
    chaos.queries[0].set_query_class(DNSClass::CH);
    let mut later = query("example.");
    let mut edns = Edns::new();
    edns.set_version(1);
    later.set_edns(edns);
    let mut two = query("example.");
    two.queries.push(two.queries[0].clone());
    let mut none = query("example.");
    none.queries.clear();
    for (query, code, reason) in [
        (update, ResponseCode::NotImp, Refusal::Unsupported),
        (
            of_kind(RecordType::AXFR),
            ResponseCode::NotImp,
            Refusal::Unsupported,
        ),
        (
            of_kind(RecordType::IXFR),
            ResponseCode::NotImp,
            Refusal::Unsupported,
        ),
        (
            of_kind(RecordType::OPT),
            ResponseCode::NotImp,
            Refusal::Unsupported,
        ),
        (chaos, ResponseCode::Refused, Refusal::Unsupported),
        // As this is written; as 16, it reads as another name of the same number.
        (later, ResponseCode::BADSIG, Refusal::Unsupported),
        (two, ResponseCode::FormErr, Refusal::Malformed),
        (none, ResponseCode::FormErr, Refusal::Malformed),
    ] {
        let rejected = read(&query, Over::Udp).unwrap_err();
        let answer = parsed(&rejected.answer.unwrap());
        assert_eq!(answer.metadata.response_code, code);
        assert_eq!(answer.metadata.id, query.metadata.id);
        assert_eq!(rejected.reason, reason);
    }
    for kind in [
        RecordType::ANY,
        RecordType::HTTPS,
        RecordType::Unknown(65_280),
    ] {
        read(&of_kind(kind), Over::Udp).unwrap();
    }
}

#[test]
fn answers_and_fragments_of_a_header_get_no_answer() {
    let query = query("example.").to_vec().unwrap();
    for length in 0..HEADER {
        let rejected = Question::read(&query[..length], Over::Udp).unwrap_err();
        assert_eq!(
            (rejected.reason, rejected.answer),
            (Refusal::Malformed, None)
        );
    }
    let mut answer = query.clone();
    answer[2] |= 0x80;
    let rejected = Question::read(&answer, Over::Udp).unwrap_err();
    assert_eq!(
        (rejected.reason, rejected.answer),
        (Refusal::Malformed, None)
    );
    // Anything longer is a query that can be answered.
    for length in HEADER..query.len() {
        let rejected = Question::read(&query[..length], Over::Udp).unwrap_err();
        let answer = parsed(&rejected.answer.unwrap());
        assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    }
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_answered_with_their_number_or_not_at_all(
        bytes in vec(any::<u8>(), 0..600),
        begins_well in any::<bool>(),
        tcp in any::<bool>(),
    ) {
        let over = if tcp { Over::Tcp } else { Over::Udp };
        let mut bytes = bytes;
        if begins_well && bytes.len() > HEADER {
            bytes[2..HEADER].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        }
        let answer = match Question::read(&bytes, over) {
            Ok(question) => Some(question.answer_without_records(ResponseCode::ServFail)),
            Err(rejected) => rejected.answer,
        };
        if let Some(answer) = answer {
            prop_assert_eq!(&answer[..2], &bytes[..2]);
            prop_assert_eq!(parsed(&answer).metadata.message_type, MessageType::Response);
        }
    }
}

fn query(name: &str) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

fn read(query: &Message, over: Over) -> Result<Question, Rejected> {
    Question::read(&query.to_vec().unwrap(), over)
}

/// Returns this many addresses.
pub(super) fn found(question: &Question, count: usize) -> Lookup {
    let record = |index| {
        let address = A(std::net::Ipv4Addr::from_bits(index as u32));
        Record::from_rdata(question.query.name().clone(), 60, RData::A(address))
    };
    Lookup::new_with_max_ttl(question.query.clone(), (0..count).map(record))
}

pub(super) fn parsed(bytes: &[u8]) -> Message {
    Message::from_vec(bytes).unwrap()
}
