//! Fuzzes reads of any shape, against a reference segmentation.

use convoy_fuzz::{Result, Unstructured};

use super::*;
use crate::{
    pool::Pool,
    testing::{Headers, payload, reference},
};

thread_local! {
    static POOL: std::sync::Arc<Pool<OutboundBuffer>> = Pool::new(1, OutboundBuffer::new);
}

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn fuzz_reads() {
    convoy_fuzz::run("reads", 4000, 600, reads);
}

/// Checks that the packets handed out are those of the reference, however each is padded, and that
/// malformed reads are counted.
fn reads(input: &mut Unstructured<'_>) -> Result<()> {
    let lease = POOL.with(Pool::take);
    let mut batch = OutboundBatch(lease.expect("the batch of before was dropped"));
    batch.0.clear();
    let framing = if input.ratio(1, 16)? { 0 } else { VNET_LEN };
    let (mut expected, mut malformed) = (Vec::new(), 0);
    for _ in 0..input.int_in_range(1..=4)? {
        let raw = read(input)?;
        let Some(room) = batch.0.room(framing) else {
            break;
        };
        room[..raw.len()].copy_from_slice(&raw);
        batch.0.accept(raw.len(), framing);
        let packets = match framing {
            0 => (!raw.is_empty()).then(|| vec![raw]),
            _ => reference::packets_of(&raw),
        };
        match packets {
            Some(packets) => expected.extend(packets),
            None => malformed += 1,
        }
    }
    assert_eq!(batch.malformed(), malformed);
    assert_eq!(batch.packets(), expected.len());
    assert_eq!(batch.packets_per_read().sum::<usize>(), expected.len());
    for (index, packet) in expected.iter().enumerate() {
        assert_eq!(batch.remaining(), expected.len() - index);
        let mut handed_out = batch.next().expect("as many as were promised");
        assert_eq!(handed_out.bytes(), &packet[..], "packet {index}");
        let padding = usize::from(input.arbitrary::<u8>().unwrap_or(15)) % (MAX_PADDING + 1);
        let padded = handed_out.padded(packet.len() + padding);
        assert_eq!(
            padded.split_at(packet.len()),
            (&packet[..], &[0; MAX_PADDING][..padding])
        );
    }
    assert!(batch.next().is_none());
    Ok(())
}

/// A virtio header and a packet: arbitrary bytes, or a well-formed pair with a few bytes changed.
fn read(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if input.ratio(1, 8)? {
        let len = input.int_in_range(0..=200)?;
        return Ok(input.bytes(len.min(input.len()))?.to_vec());
    }
    let headers = any_headers(input)?;
    let longest = if input.ratio(1, 32)? { 65_300 } else { 3000 };
    let len = input.int_in_range(0..=longest - headers.len())?;
    let segment_len = input.int_in_range(1..=2000)?;
    let payload = payload(len.min(segment_len * 200), input.arbitrary()?);
    let (vnet, packet) = if input.ratio(7, 8)? {
        headers.super_packet(&payload, segment_len)
    } else {
        (VnetHeader::default(), headers.packet(&payload))
    };
    let mut raw = [&vnet.to_bytes()[..], &packet].concat();
    for _ in 0..input.int_in_range(0..=3)? {
        let at = input.int_in_range(0..=raw.len().min(130) - 1)?;
        raw[at] = input.arbitrary()?;
    }
    if input.ratio(1, 8)? {
        raw.truncate(input.int_in_range(1..=raw.len())?);
    }
    // After a change, the checksum is rarely right by chance, so mostly correct it.
    let is_right = raw.len() > VNET_LEN && input.ratio(7, 8)?;
    if is_right && let Some((at, seed)) = reference::seed(&raw[VNET_LEN..]) {
        raw[VNET_LEN + at..][..2].copy_from_slice(&seed);
    }
    Ok(raw)
}

fn any_headers(input: &mut Unstructured<'_>) -> Result<Headers> {
    let mut headers = Headers::new(input.arbitrary()?, input.arbitrary()?);
    headers.flags = input.arbitrary()?;
    headers.sequence = input.arbitrary()?;
    headers.identification = input.arbitrary()?;
    headers.network_options = usize::from(input.arbitrary::<u8>()? % 4);
    headers.tcp_options = usize::from(input.arbitrary::<u8>()? % 11);
    Ok(headers)
}
