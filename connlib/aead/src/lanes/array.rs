//! Lanes as plain arrays, for tests only: slow, but they run on every CPU and under Miri.

use super::{Computation, Lanes, REGISTER};

/// The instruction set of plain arrays, which every CPU has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array;

/// The lanes of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words([u64; 8]);

impl Lanes for Array {
    type Register = Words;

    fn run<C: Computation>(self, computation: C) -> C::Output {
        computation.run(self)
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; REGISTER]) -> Words {
        Words::from_bytes(bytes)
    }

    #[inline(always)]
    fn load_first(self, bytes: &[u8]) -> Words {
        let mut register = [0; REGISTER];
        register[..bytes.len()].copy_from_slice(bytes);
        Words::from_bytes(&register)
    }

    #[inline(always)]
    fn store(self, register: Words, bytes: &mut [u8; REGISTER]) {
        *bytes = register.bytes();
    }

    #[inline(always)]
    fn store_first(self, register: Words, bytes: &mut [u8]) {
        bytes.copy_from_slice(&register.bytes()[..bytes.len()]);
    }

    #[inline(always)]
    fn keep_first(self, register: Words, len: usize) -> Words {
        let mut bytes = register.bytes();
        bytes[len..].fill(0);
        Words::from_bytes(&bytes)
    }

    #[inline(always)]
    fn splat32(self, value: u32) -> Words {
        Words::from_halves([value; 16])
    }

    #[inline(always)]
    fn splat64(self, value: u64) -> Words {
        Words([value; 8])
    }

    #[inline(always)]
    fn xor(self, a: Words, b: Words) -> Words {
        a.zip(b, |a, b| a ^ b)
    }

    #[inline(always)]
    fn and(self, a: Words, b: Words) -> Words {
        a.zip(b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: Words, b: Words) -> Words {
        a.zip(b, |a, b| a | b)
    }

    #[inline(always)]
    fn add32(self, a: Words, b: Words) -> Words {
        let (a, b) = (a.halves(), b.halves());
        Words::from_halves(std::array::from_fn(|lane| a[lane].wrapping_add(b[lane])))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(self, a: Words) -> Words {
        Words::from_halves(a.halves().map(|lane| lane.rotate_left(BITS as u32)))
    }

    #[inline(always)]
    fn add64(self, a: Words, b: Words) -> Words {
        a.zip(b, u64::wrapping_add)
    }

    #[inline(always)]
    fn shift_left64<const BITS: u32>(self, a: Words) -> Words {
        Words(a.0.map(|lane| lane << BITS))
    }

    #[inline(always)]
    fn shift_right64<const BITS: u32>(self, a: Words) -> Words {
        Words(a.0.map(|lane| lane >> BITS))
    }

    #[inline(always)]
    fn multiply_add_low(self, sum: Words, a: Words, b: Words) -> Words {
        sum.zip(
            a.zip(b, |a, b| product(a, b) as u64 & LOW),
            u64::wrapping_add,
        )
    }

    #[inline(always)]
    fn multiply_add_high(self, sum: Words, a: Words, b: Words) -> Words {
        sum.zip(
            a.zip(b, |a, b| (product(a, b) >> 52) as u64),
            u64::wrapping_add,
        )
    }

    #[inline(always)]
    fn select64(self, mask: u8, then: Words, otherwise: Words) -> Words {
        let pick = |lane| match mask >> lane & 1 {
            1 => then.0[lane],
            _ => otherwise.0[lane],
        };
        Words(std::array::from_fn(pick))
    }

    #[inline(always)]
    fn transpose32(self, rows: [Words; 16]) -> [Words; 16] {
        let rows = rows.map(Words::halves);
        std::array::from_fn(|column| Words::from_halves(rows.map(|row| row[column])))
    }

    #[inline(always)]
    fn transpose64(self, rows: [Words; 8]) -> [Words; 8] {
        std::array::from_fn(|column| Words(rows.map(|row| row.0[column])))
    }
}

const LOW: u64 = (1 << 52) - 1;

fn product(a: u64, b: u64) -> u128 {
    u128::from(a & LOW) * u128::from(b & LOW)
}

impl Words {
    fn from_bytes(bytes: &[u8; REGISTER]) -> Self {
        let (words, _) = bytes.as_chunks();
        Self(std::array::from_fn(|lane| u64::from_le_bytes(words[lane])))
    }

    fn bytes(self) -> [u8; REGISTER] {
        let mut bytes = [0; REGISTER];
        let (words, _) = bytes.as_chunks_mut();
        for (word, lane) in words.iter_mut().zip(self.0) {
            *word = lane.to_le_bytes();
        }
        bytes
    }

    /// The lanes of 32 bits.
    fn halves(self) -> [u32; 16] {
        std::array::from_fn(|lane| (self.0[lane / 2] >> (lane % 2 * 32)) as u32)
    }

    fn from_halves(halves: [u32; 16]) -> Self {
        let word = |lane| u64::from(halves[2 * lane]) | u64::from(halves[2 * lane + 1]) << 32;
        Self(std::array::from_fn(word))
    }

    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|lane| {
            combine(self.0[lane], other.0[lane])
        }))
    }
}
