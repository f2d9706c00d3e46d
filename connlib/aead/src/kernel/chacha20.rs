//! ChaCha20 (RFC 8439 §2.3): register w holds word w of the states of all packets, packet n in lane n.

use super::Lane;
use crate::lanes::{LANES, Lanes, REGISTER};

/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The index of the block counter among the words of the state.
const COUNTER: usize = 12;

/// The initial states of 16 packets.
pub(crate) struct Cipher<L: Lanes> {
    lanes: L,
    state: [L::Register; 16],
}

impl<L: Lanes> Cipher<L> {
    #[inline(always)]
    pub(crate) fn new<T>(lanes: L, packets: &[Lane<'_, T>; LANES]) -> Self {
        let mut rows = [lanes.splat32(0); LANES];
        for n in 0..LANES {
            rows[n] = lanes.load(&state_of(&packets[n]));
        }
        let state = lanes.transpose32(rows);
        Self { lanes, state }
    }

    /// Block `counter` of each packet's key stream (RFC 8439 §2.3.1), one packet per row.
    #[inline(always)]
    pub(crate) fn key_stream(&self, counter: u32) -> [L::Register; LANES] {
        let lanes = self.lanes;
        let mut initial = self.state;
        initial[COUNTER] = lanes.splat32(counter);
        let mut words = initial;
        for _ in 0..10 {
            quarter_rounds(
                lanes,
                &mut words,
                [0, 1, 2, 3],
                [4, 5, 6, 7],
                [8, 9, 10, 11],
                [12, 13, 14, 15],
            );
            quarter_rounds(
                lanes,
                &mut words,
                [0, 1, 2, 3],
                [5, 6, 7, 4],
                [10, 11, 8, 9],
                [15, 12, 13, 14],
            );
        }
        for n in 0..16 {
            words[n] = lanes.add32(words[n], initial[n]);
        }
        lanes.transpose32(words)
    }
}

/// The state of one packet (RFC 8439 §2.3), with block counter 0.
#[inline(always)]
fn state_of<T>(packet: &Lane<'_, T>) -> [u8; REGISTER] {
    let mut state = [0; REGISTER];
    let (words, _) = state.as_chunks_mut::<4>();
    for n in 0..4 {
        words[n] = CONSTANTS[n].to_le_bytes();
    }
    for n in 0..8 {
        words[4 + n] = packet.key[n].to_le_bytes();
    }
    for n in 0..3 {
        words[COUNTER + 1 + n] = packet.nonce[n].to_le_bytes();
    }
    state
}

/// Four quarter rounds (RFC 8439 §2.1), interleaved so that no step waits for the one before it.
#[inline(always)]
fn quarter_rounds<L: Lanes>(
    lanes: L,
    words: &mut [L::Register; 16],
    a: [usize; 4],
    b: [usize; 4],
    c: [usize; 4],
    d: [usize; 4],
) {
    step::<L, 16>(lanes, words, a, b, d);
    step::<L, 12>(lanes, words, c, d, b);
    step::<L, 8>(lanes, words, a, b, d);
    step::<L, 7>(lanes, words, c, d, b);
}

/// `x += y; z ^= x; z <<<= BITS` in each of four quarter rounds.
#[inline(always)]
fn step<L: Lanes, const BITS: i32>(
    lanes: L,
    words: &mut [L::Register; 16],
    x: [usize; 4],
    y: [usize; 4],
    z: [usize; 4],
) {
    for n in 0..4 {
        words[x[n]] = lanes.add32(words[x[n]], words[y[n]]);
    }
    for n in 0..4 {
        words[z[n]] = lanes.xor(words[z[n]], words[x[n]]);
    }
    for n in 0..4 {
        words[z[n]] = lanes.rotate32::<BITS>(words[z[n]]);
    }
}
