//! Fuzzes queries, and answers with records of any kind.

use convoy_fuzz::{Result, Unstructured};
use hickory_resolver::proto::op::MessageType;

use super::{
    tests::{found, parsed},
    *,
};

#[test]
fn fuzz_queries() {
    convoy_fuzz::run("queries", 4000, 600, queries);
}

/// Answers any query with any records. The answer is no longer than it may be, and can be read.
fn queries(input: &mut Unstructured<'_>) -> Result<()> {
    let over = match input.arbitrary()? {
        true => Over::Tcp,
        false => Over::Udp,
    };
    let bytes = match input.arbitrary()? {
        true => input.arbitrary::<Vec<u8>>()?,
        false => well_formed(input)?,
    };
    let question = match Question::read(&bytes, over) {
        Ok(question) => question,
        Err(rejected) => {
            check(&rejected.answer.unwrap_or_default(), &bytes, over);
            return Ok(());
        }
    };
    let count = input.int_in_range(0..=90)?;
    check(&question.answer(Ok(&found(&question, count))), &bytes, over);
    let none = NoRecords::new(question.query.clone(), ResponseCode::NXDomain);
    check(&question.answer(Err(&none.into())), &bytes, over);
    let mut records = Vec::new();
    for _ in 0..input.int_in_range(0..=8)? {
        let mut message = vec![0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        message.extend(record(input)?);
        let message = Message::from_vec(&message);
        records.extend(message.map(|it| it.answers).unwrap_or_default());
    }
    let mut lookup = Lookup::new_with_max_ttl(question.query.clone(), records.clone());
    lookup.extend_authorities(records.clone());
    lookup.extend_additionals(records);
    check(&question.answer(Ok(&lookup)), &bytes, over);
    Ok(())
}

/// A query with one question and, mostly, a record such as that of EDNS.
fn well_formed(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    bytes.extend(name(input)?);
    let kind = input.arbitrary::<u16>()? % 300;
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    match input.arbitrary()? {
        // EDNS without options.
        true => {
            bytes.extend([0, 0, 41]);
            bytes.extend(input.arbitrary::<[u8; 6]>()?);
            bytes.extend([0, 0]);
        }
        false => bytes.extend(record(input)?),
    }
    Ok(bytes)
}

fn record(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = name(input)?;
    let kind = input.arbitrary::<u16>()? % 300;
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 9]);
    let mut data = input.arbitrary::<Vec<u8>>()?;
    if input.arbitrary()? {
        data.extend(name(input)?);
    }
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    Ok(bytes)
}

fn name(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        let label = input.arbitrary::<[u8; 8]>()?;
        let length = input.int_in_range(1..=8)?;
        bytes.push(length as u8);
        bytes.extend(&label[..length]);
    }
    bytes.push(0);
    Ok(bytes)
}

fn check(answer: &[u8], query: &[u8], over: Over) {
    if answer.is_empty() {
        return;
    }
    assert!(over == Over::Tcp || answer.len() <= LONGEST_DATAGRAM.into());
    assert_eq!(answer[..2], query[..2]);
    let answer = parsed(answer);
    assert_eq!(answer.metadata.message_type, MessageType::Response);
}
