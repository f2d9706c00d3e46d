//! Segments in an open connection that may be forged, and what answers them (RFC 5961).

use super::{
    closed_window::SCALE,
    closing::{acknowledged, read_to_end},
    hostile::{opened, scaled},
    wire::*,
    *,
};
use convoy_packet::segment::{ACK, FIN, RST, SYN, Segment};

/// Segments that are challenged, whatever number is expected up to 1,000.
fn doubtful() -> [Vec<u8>; 2] {
    [
        scaled(RST, 0, 2_000, 0, &[]),
        scaled(SYN, 0, 7_000_000, 0, &[]),
    ]
}

#[tokio::test]
async fn challenges_announce_the_window_announced_before() {
    let (a, wire) = scene();
    let (_stream, first) = opened(&a, &wire).await;
    for doubtful in doubtful() {
        wire.send(&doubtful);
        // Only the SYN-ACK has announced one so far, without a scale.
        let answer = acknowledged(&wire, 1);
        assert!(answer.window >= u16::MAX >> SCALE, "{answer:?}");
    }
    wire.send(&scaled(ACK, 512, 1, first, &[7; 800]));
    let before = acknowledged(&wire, 801);
    for doubtful in doubtful() {
        wire.send(&doubtful);
        assert_eq!(parsed(&wire.receive()).1, before);
    }
}

#[tokio::test]
async fn challenges_between_data_take_no_window_back() {
    let (a, wire) = scene();
    let (_stream, first) = opened(&a, &wire).await;
    let mut edge = 0;
    let mut check = |answer: &Segment| {
        let announced = answer.acknowledged + (u32::from(answer.window) << SCALE);
        // By less than the unit of its scale (RFC 7323 §2.4).
        assert!(announced + (1 << SCALE) > edge, "{edge} {answer:?}");
        edge = edge.max(announced);
    };
    for index in 0..100 {
        let sequence = 1 + 7 * index;
        wire.send(&scaled(ACK, 512, sequence, first, &[7; 7]));
        wire.send(&doubtful()[index as usize % 2]);
        loop {
            let answer = parsed(&wire.receive()).1;
            check(&answer);
            if answer.acknowledged == sequence + 7 {
                break;
            }
        }
    }
    assert!(edge > u32::from(u16::MAX), "{edge}");
}

/// The window that the other end announces in these tests, which is the widest ever.
const WIDEST: u32 = 512 << 7;

#[tokio::test]
async fn data_and_ends_that_acknowledge_what_was_never_in_flight_are_challenged_and_change_nothing()
{
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    stream.write_all(b"answer").await.unwrap();
    assert_eq!(parsed(&wire.receive()).1.payload_len, 6);
    wire.send(&scaled(ACK, 512, 1, first.wrapping_add(6), &[]));
    let unsent = first.wrapping_add(7);
    let too_old = first.wrapping_add(6).wrapping_sub(WIDEST + 1);
    for forged in [
        too_old,
        first.wrapping_sub(1 << 29),
        first ^ (1 << 31),
        unsent,
    ] {
        for (flags, sequence, payload) in [
            (ACK | FIN, 1, &b""[..]),
            (ACK | FIN, 2, b""),
            (ACK | FIN, 3, b"forged"),
            (ACK, 1, b"forged"),
            (ACK, 100, b"forged"),
        ] {
            wire.send(&scaled(flags, 512, sequence, forged, payload));
            let answer = parsed(&wire.receive()).1;
            let answer = (answer.flags, answer.sequence, answer.acknowledged);
            assert_eq!(answer, (ACK, first.wrapping_add(6), 1), "{forged} {flags}");
        }
    }
    let oldest = too_old.wrapping_add(1);
    wire.send(&scaled(ACK, 512, 1, oldest, b"hon"));
    wire.send(&scaled(ACK | FIN, 512, 4, first.wrapping_add(6), b"est"));
    assert_eq!(read_to_end(&mut stream).await, b"honest");
}

#[tokio::test]
async fn ends_without_an_acknowledgement_and_with_a_reset_end_nothing() {
    let (a, wire) = scene();
    let (mut stream, first) = opened(&a, &wire).await;
    for sequence in [1, 2] {
        wire.send(&scaled(FIN, 512, sequence, first, &[]));
        wire.send(&scaled(FIN, 512, sequence, first, b"forged"));
    }
    wire.send(&scaled(FIN | RST | ACK, 512, 1, first, &[]));
    wire.send(&scaled(ACK | FIN, 512, 1, first, b"honest"));
    assert_eq!(read_to_end(&mut stream).await, b"honest");
}

#[tokio::test]
async fn a_reset_that_is_a_guess_does_not_end_a_connection_that_begins() {
    let (a, wire) = scene();
    let listener = a.listen(at(A, 80)).await.unwrap();
    wire.send(&scaled(SYN, 0, 0, 0, &[]));
    let first = parsed(&wire.receive()).1.sequence.wrapping_add(1);
    wire.send(&scaled(RST, 0, 2_000, 0, &[]));
    wire.send(&scaled(ACK, 512, 1, first, b"x"));
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    assert_eq!(within(stream.read_u8()).await.unwrap(), b'x');
    assert_eq!(a.flows(), 1);
}
