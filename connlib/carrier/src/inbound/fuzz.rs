//! Fuzzes a server's stream: whole frames, half ones and nonsense, cut anywhere, to a reader that takes some at a time.

use convoy_fuzz::{Result, Unstructured};

use super::*;

#[test]
fn fuzz_frames() {
    convoy_fuzz::run("frames", 1_000, 600, frames);
}

fn frames(input: &mut Unstructured<'_>) -> Result<()> {
    let stream = stream(input)?;
    let (expected, ends_badly) = parsed(&stream);
    let (mut rest, mut found, mut inbound) = (&stream[..], 0, Inbound::default());
    while !rest.is_empty() && inbound.check().is_ok() {
        let room = inbound.room();
        let part = input
            .int_in_range(1..=40_000)?
            .min(rest.len())
            .min(room.len());
        room[..part].copy_from_slice(&rest[..part]);
        inbound.commit(part);
        rest = &rest[part..];
        assert!(inbound.len() <= MAX_INBOUND);
        let most = match rest.is_empty() || inbound.is_full() {
            true => usize::MAX,
            false => input.int_in_range(0..=3)?,
        };
        let taken: Vec<_> = inbound.frames().take(most).map(<[u8]>::to_vec).collect();
        for frame in taken {
            assert!(inbound.has_frame());
            assert_eq!(Some(&frame[..]), expected.get(found).copied());
            inbound.advance();
            found += 1;
        }
    }
    if rest.is_empty() {
        assert_eq!(found, expected.len());
        assert_eq!(inbound.check().is_err(), ends_badly);
    }
    Ok(())
}

/// The frames of a whole stream, and whether something else follows.
fn parsed(mut stream: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut frames = Vec::new();
    loop {
        match frame_len(stream) {
            Ok(Some(len)) if len <= stream.len() => {
                let (frame, rest) = stream.split_at(len);
                frames.push(frame);
                stream = rest;
            }
            Ok(_) => return (frames, false),
            Err(NotTurn) => return (frames, true),
        }
    }
}

fn stream(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut stream = Vec::new();
    for _ in 0..input.int_in_range(0..=12)? {
        let len = match input.ratio(1, 16)? {
            true => input.arbitrary()?,
            false => input.int_in_range(0..=2_000)?,
        };
        match input.int_in_range(0..=9)? {
            0..=5 => frame(&mut stream, 0x40 | input.int_in_range(0..=15)?, 4, len),
            6..=8 => frame(&mut stream, input.int_in_range(0..=1)?, 20, len & !3),
            _ => stream.extend(input.arbitrary::<[u8; 5]>()?),
        }
    }
    Ok(stream)
}

fn frame(stream: &mut Vec<u8>, kind: u8, header: usize, len: u16) {
    let start = stream.len();
    stream.extend([kind, 0]);
    stream.extend(len.to_be_bytes());
    let whole = (header + usize::from(len)).next_multiple_of(4);
    stream.resize(start + whole, kind);
}
