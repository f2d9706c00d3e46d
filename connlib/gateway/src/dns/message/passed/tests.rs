use hickory_resolver::proto::{
    op::Query,
    rr::{
        Name,
        rdata::opt::{EdnsCode, EdnsOption},
    },
};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::dns::message::{Over, tests::parsed};

/// The number of queries to the server.
const ID: u16 = 0x1234;
/// An address and its signature, whose signer has letters of both kinds; the owners are pointers to the question.
const SIGNED: [&[u8]; 2] = [
    b"\xc0\x0c\0\x01\0\x01\0\0\x02\x58\0\x04\xc0\0\x02\x07",
    b"\xc0\x0c\0\x2e\0\x01\0\0\x02\x58\0\x1f\0\x01\x0d\x02\0\0\x02\x58\x6b\0\0\0\x6a\0\0\0\x30\x39\x07eXample\0sign",
];
/// An error that a validating server explains: RFC 8914, "DNSSEC bogus".
const EDNS_WITH_AN_OPTION: &[u8] = b"\0\0\x29\x10\0\0\0\x80\0\0\x06\0\x0f\0\x02\0\x06";
const AD: u8 = AUTHENTIC_DATA;

#[test]
fn a_signed_answer_passes_byte_by_byte_with_the_servers_word_on_it() {
    for server_says in [AD, 0] {
        let question = question("wWw.example.", |query| dnssec_ok(query, 4_096));
        let reply = reply(
            "www.example.",
            [0x84, 0x80 | server_says],
            &SIGNED,
            &[EDNS_WITH_AN_OPTION],
        );
        let answer = question.pass(&read(&question, &reply).unwrap());
        let records = HEADER + "3www7example0".len() + 4;
        let behind = reply.len() - EDNS_WITH_AN_OPTION.len();
        assert_eq!(answer[records..behind], reply[records..behind]);
        assert_eq!(answer[HEADER..records][..4], *b"\x03wWw");
        let parsed = parsed(&answer);
        assert_eq!(parsed.metadata.authentic_data, server_says != 0);
        assert!(!parsed.metadata.authoritative && parsed.metadata.recursion_available);
        assert_eq!(parsed.metadata.id, question.id);
        let edns = parsed.edns.unwrap();
        assert!(edns.flags().dnssec_ok);
        assert_eq!(edns.max_payload(), LONGEST_DATAGRAM);
        assert!(answer.ends_with(b"\0\x0f\0\x02\0\x06"));
    }
}

#[test]
fn only_clients_that_ask_for_it_learn_whether_an_answer_is_authentic() {
    type Change = fn(&mut Message);
    let asks: [(Change, bool); 4] = [
        (|query| dnssec_ok(query, 1_232), true),
        (|query| query.metadata.authentic_data = true, true),
        (|query| query.metadata.checking_disabled = true, false),
        (
            |query| {
                query.queries[0].set_query_type(RecordType::Unknown(48));
            },
            false,
        ),
    ];
    for (change, learns) in asks {
        let question = question("a.example.", change);
        assert!(question.passes());
        let kind = u16::from(question.query.query_type());
        let reply = reply_of_type("a.example.", kind, [0x81, 0x80 | AD], &[], &[]);
        let answer = parsed(&question.pass(&read(&question, &reply).unwrap()));
        assert_eq!(answer.metadata.authentic_data, learns, "{question:?}");
        assert_eq!(
            answer.metadata.checking_disabled,
            question.dnssec.checking_disabled
        );
        assert_eq!(answer.edns.is_some(), question.has_edns());
    }
    // No other answer says so.
    let plain = question("a.example.", |_| {});
    assert!(!plain.passes());
    let refused = plain.answer_without_records(ResponseCode::ServFail);
    assert!(!parsed(&refused).metadata.authentic_data);
}

#[test]
fn records_of_dnssec_and_of_unknown_types_pass_without_a_bit_that_asks_for_them() {
    for kind in [43, 46, 47, 48, 50, 51, 59, 60, 65_280] {
        let asks = |query: &mut Message| {
            query.queries[0].set_query_type(RecordType::from(kind));
        };
        assert!(question("a.example.", asks).passes(), "{kind}");
    }
    for kind in [RecordType::A, RecordType::HTTPS, RecordType::TXT] {
        let asks = |query: &mut Message| {
            query.queries[0].set_query_type(kind);
        };
        assert!(!question("a.example.", asks).passes(), "{kind}");
    }
}

#[test]
fn the_servers_query_has_the_clients_bits_and_none_of_its_options() {
    for bits in 0..8 {
        let [ok, unchecked, authentic] = [1, 2, 4].map(|bit| bits & bit != 0);
        let question = question("a.example.", |query| {
            query.metadata.checking_disabled = unchecked;
            query.metadata.authentic_data = authentic;
            let edns = query.edns.get_or_insert_with(Edns::new);
            edns.set_dnssec_ok(ok);
            // A client's network, a cookie, padding, and one that nobody knows.
            for code in [8, 10, 12, 65_001] {
                let data = vec![0, 1, 24, 0, 192, 0, 2, 0];
                let option = EdnsOption::Unknown(code, data);
                edns.options_mut().insert(option);
            }
        });
        let query = parsed(&question.forwarded(ID, true).unwrap());
        let edns = query.edns.as_ref().unwrap();
        assert_eq!(query.metadata.id, ID);
        assert!(query.metadata.recursion_desired);
        assert_eq!(query.metadata.checking_disabled, unchecked);
        assert_eq!(query.metadata.authentic_data, authentic);
        assert_eq!(
            (edns.flags().dnssec_ok, edns.max_payload()),
            (ok, LONGEST_DATAGRAM)
        );
        for code in [8, 10, 12, 65_001] {
            assert!(edns.option(EdnsCode::from(code)).is_none());
        }
    }
    let plain = question("a.example.", |query| {
        query.metadata.checking_disabled = true
    });
    assert!(!plain.has_edns());
    assert!(parsed(&plain.forwarded(ID, false).unwrap()).edns.is_none());
}

#[test]
fn an_answer_longer_than_its_client_takes_says_so_and_no_more() {
    let texts = vec![SIGNED[1]; 40];
    for (over, payload, count, fits) in [
        (Over::Udp, Some(4_096), 27, true),
        (Over::Udp, Some(4_096), 29, false),
        (Over::Udp, Some(512), 11, false),
        (Over::Udp, None, 11, true),
        (Over::Udp, None, 12, false),
        (Over::Tcp, Some(512), 40, true),
    ] {
        let mut question = question("a.example.", |query| {
            query.metadata.authentic_data = true;
            if let Some(payload) = payload {
                dnssec_ok(query, payload);
            }
        });
        question.over = over;
        let edns: &[&[u8]] = if payload.is_some() {
            &[EDNS_WITH_AN_OPTION]
        } else {
            &[]
        };
        let reply = reply("a.example.", [0x81, 0x80 | AD], &texts[..count], edns);
        let answer = question.pass(&read(&question, &reply).unwrap());
        assert!(over == Over::Tcp || answer.len() <= question.longest());
        let parsed = parsed(&answer);
        assert_eq!(
            parsed.metadata.truncation, !fits,
            "{over:?} {payload:?} {count}"
        );
        assert_eq!(parsed.metadata.authentic_data, fits);
        assert_eq!(parsed.answers.len(), if fits { count } else { 0 });
        assert_eq!(parsed.edns.is_some(), payload.is_some());
    }
    // The server's own word for it, whatever is behind.
    let question = question("a.example.", |query| dnssec_ok(query, 1_232));
    let mut reply = reply("a.example.", [0x83, 0x80 | AD], &SIGNED, &[]);
    reply.truncate(reply.len() - 5);
    let response = read(&question, &reply).unwrap();
    assert!(response.is_truncated() && parsed(&question.pass(&response)).metadata.truncation);
}

#[test]
fn what_is_no_answer_to_the_query_is_none() {
    let question = question("a.example.", |query| dnssec_ok(query, 1_232));
    let right = reply("A.example.", [0x81, 0x80], &SIGNED, &[EDNS_WITH_AN_OPTION]);
    assert!(read(&question, &right).is_some());
    let changed = |at: usize, to: u8| {
        let mut reply = right.clone();
        reply[at] = to;
        reply
    };
    let kind = HEADER + "1a7example0".len();
    for wrong in [
        changed(0, 7),
        changed(2, 1),
        changed(2, 0x91),
        changed(HEADER + 1, b'b'),
        // The letter of a type is none: 33 is SRV and 1 is A.
        changed(kind + 1, 0x21),
        changed(kind + 3, 3),
        changed(5, 2),
        changed(7, 9),
        right[..right.len() - 1].to_vec(),
        right[..kind].to_vec(),
        reply("a.example.", [0x81, 0x80], &[EDNS_WITH_AN_OPTION], &[]),
        reply("a.example.", [0x81, 0x80], &[], &[EDNS_WITH_AN_OPTION; 2]),
    ] {
        assert!(read(&question, &wrong).is_none(), "{wrong:?}");
    }
    let https = question_of_type(65);
    let like_it = reply_of_type("a.example.", 97, [0x81, 0x80], &[], &[]);
    assert!(read(&https, &like_it).is_none());
}

#[test]
fn an_error_without_a_question_and_extensions_nobody_asked_for_are_understood() {
    let question = question("a.example.", |query| {
        query.metadata.checking_disabled = true
    });
    let alone = [&ID.to_be_bytes()[..], &[0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let response = read(&question, &alone).unwrap();
    assert_eq!(response.code(), ResponseCode::FormErr);
    parsed(&question.pass(&response));
    let reply = reply("a.example.", [0x81, 0x80], &SIGNED, &[EDNS_WITH_AN_OPTION]);
    let response = Response::read(reply, &question, ID, false).unwrap();
    let answer = parsed(&question.pass(&response));
    assert_eq!((answer.answers.len(), answer.edns), (2, None));
}

#[test]
fn a_referral_names_the_servers_of_a_zone_and_neither_an_answer_nor_an_authority() {
    const NS: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\x02\x58\0\x02\xc0\x0c";
    let soa = [
        &b"\xc0\x0c\0\x06\0\x01\0\0\x02\x58\0\x18\xc0\x0c\xc0\x0c"[..],
        &[0; 20],
    ]
    .concat();
    let (soa, signature) = (&soa[..], SIGNED[1]);
    let question = question("a.example.", |query| dnssec_ok(query, 1_232));
    for (answers, authority, code, expected) in [
        (0, &[NS, signature][..], 0, true),
        (0, &[NS, soa], 0, false),
        (0, &[soa, NS], 0, false),
        (0, &[soa], 0, false),
        (0, &[], 0, false),
        (1, &[SIGNED[0], NS], 0, false),
        (0, &[NS], 3, false),
        (0, &[NS], 2, false),
    ] {
        // Whether it is authoritative and offers recursion does not matter.
        for flags in [[0x80, 0], [0x84, 0], [0x80, 0x80]] {
            let flags = [flags[0], flags[1] | code];
            let mut reply = reply("a.example.", flags, authority, &[EDNS_WITH_AN_OPTION]);
            (reply[7], reply[9]) = (answers, authority.len() as u8 - answers);
            let response = read(&question, &reply).unwrap();
            assert_eq!(response.is_referral(), expected, "{reply:?}");
        }
    }
}

proptest! {
    #[test]
    fn answers_of_any_kind_are_refused_or_passed_within_their_bounds(
        behind in vec(any::<u8>(), 0..900),
        counts in any::<[u8; 3]>(),
        flags in any::<[u8; 2]>(),
        over in prop::sample::select(vec![Over::Udp, Over::Tcp]),
    ) {
        let mut question = question("a.example.", |query| dnssec_ok(query, 700));
        question.over = over;
        let mut reply = reply("a.example.", [0x80 | flags[0] & 7, flags[1]], &[], &[]);
        for (at, count) in [7, 9, 11].into_iter().zip(counts) {
            reply[at] = count % 3;
        }
        reply.extend(behind);
        for with_edns in [true, false] {
            let read = Response::read(reply.clone(), &question, ID, with_edns);
            if let Some(response) = read {
                let answer = question.pass(&response);
                prop_assert_eq!(&answer[..2], &question.id.to_be_bytes());
                prop_assert!(over == Over::Tcp || answer.len() <= 700);
            }
        }
    }
}

fn question(name: &str, change: impl FnOnce(&mut Message)) -> Question {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    change(&mut message);
    Question::read(&message.to_vec().unwrap(), Over::Udp).unwrap()
}

fn question_of_type(kind: u16) -> Question {
    question("a.example.", |query| {
        query.queries[0].set_query_type(RecordType::from(kind));
        dnssec_ok(query, 1_232);
    })
}

fn dnssec_ok(query: &mut Message, payload: u16) {
    let edns = query.edns.get_or_insert_with(Edns::new);
    edns.set_dnssec_ok(true).set_max_payload(payload);
}

fn read(question: &Question, reply: &[u8]) -> Option<Response> {
    Response::read(reply.to_vec(), question, ID, question.has_edns())
}

/// A server's answer to a question of type A.
fn reply(name: &str, flags: [u8; 2], answers: &[&[u8]], additional: &[&[u8]]) -> Vec<u8> {
    reply_of_type(name, 1, flags, answers, additional)
}

fn reply_of_type(
    name: &str,
    kind: u16,
    flags: [u8; 2],
    answers: &[&[u8]],
    additional: &[&[u8]],
) -> Vec<u8> {
    let mut bytes = ID.to_be_bytes().to_vec();
    bytes.extend(flags);
    bytes.extend([
        0,
        1,
        0,
        answers.len() as u8,
        0,
        0,
        0,
        additional.len() as u8,
    ]);
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes());
    }
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    answers
        .iter()
        .chain(additional)
        .for_each(|it| bytes.extend(*it));
    bytes
}
