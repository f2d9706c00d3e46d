//! Poly1305 (RFC 8439 §2.5): packet n in lane n % 8 of half n / 8.
//!
//! A number modulo p = 2¹³⁰ − 5 is three limbs of 44, 44 and 42 bits, as products of 52 bits want it.
//! [`Half::absorb`] derives the bounds by which no limb and no sum overflows.

use super::{
    lane::{left, longest},
    text::row,
};
use crate::lanes::{Computation, LANES, Lanes, REGISTER};

/// The tag of each packet, as a little-endian number.
pub(crate) type Tags = [u128; LANES];

/// Bytes in a block.
const BLOCK: usize = 16;
/// Bit 128 of a number, in its third limb.
const BIT_128: u64 = 1 << 40;
/// The bits of r that may be set (RFC 8439 §2.5), lower and upper half.
const CLAMP: [u64; 2] = [0x0fff_fffc_0fff_ffff, 0x0fff_fffc_0fff_fffc];

/// The authenticators of 16 packets.
pub(crate) struct Mac<L: Lanes> {
    lanes: L,
    halves: [Half<L>; 2],
}

impl<L: Lanes> Mac<L> {
    /// The first 32 bytes of a row are the packet's one-time key (RFC 8439 §2.6).
    #[inline(always)]
    pub(crate) fn new(lanes: L, keys: [L::Register; LANES]) -> Self {
        let [a, b] = columns(lanes, keys);
        Self {
            lanes,
            halves: [Half::new(lanes, a), Half::new(lanes, b)],
        }
    }

    /// Absorbs 64 bytes of every packet, one packet per row.
    #[inline(always)]
    pub(crate) fn absorb_whole(&mut self, rows: [L::Register; LANES]) {
        let [a, b] = columns(self.lanes, rows);
        for n in 0..REGISTER / BLOCK {
            self.halves[0].absorb(a[2 * n], a[2 * n + 1]);
            self.halves[1].absorb(b[2 * n], b[2 * n + 1]);
        }
    }

    /// Absorbs the first `left` bytes of each row, at most 64. Rows must be zero beyond these, which pads
    /// to whole blocks (RFC 8439 §2.8).
    #[inline(always)]
    pub(crate) fn absorb(&mut self, rows: [L::Register; LANES], left: &[usize; LANES]) {
        let [a, b] = columns(self.lanes, rows);
        for n in 0..REGISTER / BLOCK {
            let [in_a, in_b] = longer(left, n * BLOCK);
            if in_a | in_b == 0 {
                break;
            }
            self.halves[0].absorb_in(in_a, a[2 * n], a[2 * n + 1]);
            self.halves[1].absorb_in(in_b, b[2 * n], b[2 * n + 1]);
        }
    }

    /// Absorbs the bytes of each packet, padded with zeros to whole blocks.
    #[inline(always)]
    pub(crate) fn absorb_padded(&mut self, bytes: &[&[u8]; LANES]) {
        let mut lens = [0; LANES];
        for n in 0..LANES {
            lens[n] = bytes[n].len();
        }
        for block in 0..longest(&lens).div_ceil(REGISTER) {
            let mut rows = [self.lanes.splat32(0); LANES];
            for n in 0..LANES {
                rows[n] = row(self.lanes, bytes[n], block);
            }
            self.absorb(rows, &left(&lens, block));
        }
    }

    /// Absorbs the last block: the lengths of additional data and ciphertext, in bytes.
    #[inline(always)]
    pub(crate) fn absorb_lengths(&mut self, aad: &[usize; LANES], text: &[usize; LANES]) {
        for half in 0..2 {
            let aad = load_numbers(self.lanes, aad, 8 * half);
            let text = load_numbers(self.lanes, text, 8 * half);
            self.halves[half].absorb(aad, text);
        }
    }

    #[inline(always)]
    pub(crate) fn tags(self) -> Tags {
        let mut tags = [0; LANES];
        let (mut low, mut high) = ([0; REGISTER], [0; REGISTER]);
        for half in 0..2 {
            let tag = self.halves[half].tag();
            self.lanes.store(tag[0], &mut low);
            self.lanes.store(tag[1], &mut high);
            let (low, high) = (low.as_chunks().0, high.as_chunks().0);
            for n in 0..8 {
                tags[8 * half + n] = u128::from(u64::from_le_bytes(low[n]))
                    | u128::from(u64::from_le_bytes(high[n])) << 64;
            }
        }
        tags
    }
}

/// Transposes the 64-bit words of each 8 packets: word n of each packet goes to register n.
#[inline(always)]
fn columns<L: Lanes>(lanes: L, rows: [L::Register; LANES]) -> [[L::Register; 8]; 2] {
    let (mut a, mut b) = ([rows[0]; 8], [rows[0]; 8]);
    a.copy_from_slice(&rows[..8]);
    b.copy_from_slice(&rows[8..]);
    [lanes.transpose64(a), lanes.transpose64(b)]
}

/// The 8 numbers from `first`.
#[inline(always)]
fn load_numbers<L: Lanes>(lanes: L, numbers: &[usize; LANES], first: usize) -> L::Register {
    let mut bytes = [0; REGISTER];
    let (words, _) = bytes.as_chunks_mut();
    for n in 0..8 {
        words[n] = (numbers[first + n] as u64).to_le_bytes();
    }
    lanes.load(&bytes)
}

/// For each half, a mask of the packets with more than `bytes` left.
#[inline(always)]
fn longer(left: &[usize; LANES], bytes: usize) -> [u8; 2] {
    let mut mask = 0_u16;
    for n in 0..LANES {
        mask |= u16::from(left[n] > bytes) << n;
    }
    mask.to_le_bytes()
}

/// A number modulo p in each lane, the least significant limb first.
type Number<L> = [<L as Lanes>::Register; 3];

/// The authenticators of 8 packets.
struct Half<L: Lanes> {
    lanes: L,
    /// The accumulator.
    h: Number<L>,
    r: Number<L>,
    /// 20 times the upper limbs of r. Three limbs of 44 bits wrap at 2¹³² = 4 · 2¹³⁰, and modulo p that is
    /// 4 · 5 = 20.
    r20: [L::Register; 2],
    /// The second half of the one-time key, which is added to the tag.
    s: [L::Register; 2],
}

impl<L: Lanes> Half<L> {
    #[inline(always)]
    fn new(lanes: L, key: [L::Register; 8]) -> Self {
        let zero = lanes.splat64(0);
        let low = lanes.and(key[0], lanes.splat64(CLAMP[0]));
        let high = lanes.and(key[1], lanes.splat64(CLAMP[1]));
        let r = limbs(lanes, low, high);
        Self {
            lanes,
            h: [zero; 3],
            r,
            r20: [
                lanes.shift_left64::<2>(times_5(lanes, r[1])),
                lanes.shift_left64::<2>(times_5(lanes, r[2])),
            ],
            s: [key[2], key[3]],
        }
    }

    /// Sets h to (h + block + 2¹²⁸) · r mod p, partly reduced.
    ///
    /// | limbs | below |
    /// |---|---|
    /// | of r, clamped to 124 bits | 2⁴⁴, 2⁴⁴, 2³⁶ |
    /// | of `r20`: 20 times the upper two | 20 · 2⁴⁴ < 2⁴⁹, 20 · 2³⁶ < 2⁴¹ |
    /// | of h, before and after | 2⁴⁴, 2⁴⁴ + 48, 2⁴² |
    /// | of the block, with bit 128 | 2⁴⁴, 2⁴⁴, 2⁴¹ |
    /// | of their sum | 2⁴⁵, 2⁴⁵ + 47, 3 · 2⁴¹ |
    ///
    /// All are below 2⁵², so no factor loses a bit. A `low` sums three numbers below 2⁵². The `high` of d0
    /// sums the upper parts of products below 2⁸⁹, 2⁸⁶ and 2⁹¹, so it is below 2³⁷ + 2³⁴ + 2³⁹ < 2⁴⁰; those
    /// of d1 and d2 are smaller. So no carry reaches 2⁵¹, and no sum with one 2⁵⁴.
    ///
    /// The last carry comes from d2, whose `high` is below 2²⁹ + 2³⁷ + 3 · 2³³ + 3. So it is below 19.1 · 2⁴³,
    /// and five times it below 48 · 2⁴⁴: with the 44 bits of its limb that carries at most 48 into the
    /// middle limb of h, where it stays. REVIEW.md has the same bounds to hundredths of a bit.
    #[inline(always)]
    fn absorb(&mut self, low: L::Register, high: L::Register) {
        let lanes = self.lanes;
        let block = limbs(lanes, low, high);
        let h = [
            lanes.add64(self.h[0], block[0]),
            lanes.add64(self.h[1], block[1]),
            lanes.add64(self.h[2], lanes.or(block[2], lanes.splat64(BIT_128))),
        ];
        let ([r0, r1, r2], [r20_1, r20_2]) = (self.r, self.r20);
        let d0 = Product::new(lanes, h, [r0, r20_2, r20_1]);
        let d1 = Product::new(lanes, h, [r1, r0, r20_2]);
        let d2 = Product::new(lanes, h, [r2, r1, r0]);

        let (h0, carry) = d0.split::<44, 8>(lanes, lanes.splat64(0));
        let (h1, carry) = d1.split::<44, 8>(lanes, carry);
        let (h2, carry) = d2.split::<42, 10>(lanes, carry);
        let h0 = lanes.add64(h0, times_5(lanes, carry));
        self.h = [
            lanes.and(h0, lanes.splat64(low_bits(44))),
            lanes.add64(h1, lanes.shift_right64::<44>(h0)),
            h2,
        ];
    }

    /// Absorbs a block in the lanes of `mask`.
    #[inline(always)]
    fn absorb_in(&mut self, mask: u8, low: L::Register, high: L::Register) {
        let before = self.h;
        self.absorb(low, high);
        for n in 0..3 {
            self.h[n] = self.lanes.select64(mask, self.h[n], before[n]);
        }
    }

    /// (h mod p) + s mod 2¹²⁸, its lower and its upper half.
    ///
    /// As h is below 2p, h mod p is h − qp = h + 5q − 2¹³⁰q, where q = ⌊(h + 5) / 2¹³⁰⌋ is 0 or 1; the
    /// last term is 0 modulo 2¹²⁸.
    #[inline(always)]
    fn tag(&self) -> [L::Register; 2] {
        let lanes = self.lanes;
        let h = self.h;
        let sum = lanes.add64(h[0], lanes.splat64(5));
        let sum = lanes.add64(h[1], lanes.shift_right64::<44>(sum));
        let sum = lanes.add64(h[2], lanes.shift_right64::<44>(sum));
        let q = lanes.shift_right64::<42>(sum);

        let s = limbs(lanes, self.s[0], self.s[1]);
        let t0 = lanes.add64(lanes.add64(h[0], times_5(lanes, q)), s[0]);
        let t1 = lanes.add64(lanes.add64(h[1], s[1]), lanes.shift_right64::<44>(t0));
        let t2 = lanes.add64(lanes.add64(h[2], s[2]), lanes.shift_right64::<44>(t1));
        let low_44 = lanes.splat64(low_bits(44));
        [
            lanes.or(lanes.and(t0, low_44), lanes.shift_left64::<44>(t1)),
            lanes.or(
                lanes.shift_right64::<20>(lanes.and(t1, low_44)),
                lanes.shift_left64::<24>(t2),
            ),
        ]
    }
}

/// A sum of products: `low + high · 2⁵²`.
struct Product<L: Lanes> {
    low: L::Register,
    high: L::Register,
}

impl<L: Lanes> Product<L> {
    #[inline(always)]
    fn new(lanes: L, a: Number<L>, b: Number<L>) -> Self {
        let (mut low, mut high) = (lanes.splat64(0), lanes.splat64(0));
        for n in 0..3 {
            low = lanes.multiply_add_low(low, a[n], b[n]);
            high = lanes.multiply_add_high(high, a[n], b[n]);
        }
        Self { low, high }
    }

    /// Adds `carry`, then returns the low `BITS` bits and the rest. `UP` is 52 − `BITS`.
    #[inline(always)]
    fn split<const BITS: u32, const UP: u32>(
        self,
        lanes: L,
        carry: L::Register,
    ) -> (L::Register, L::Register) {
        const { assert!(BITS + UP == 52) };
        let low = lanes.add64(self.low, carry);
        let above = lanes.shift_left64::<UP>(self.high);
        (
            lanes.and(low, lanes.splat64(low_bits(BITS))),
            lanes.add64(lanes.shift_right64::<BITS>(low), above),
        )
    }
}

/// The limbs of a number of 128 bits.
#[inline(always)]
fn limbs<L: Lanes>(lanes: L, low: L::Register, high: L::Register) -> Number<L> {
    let low_44 = lanes.splat64(low_bits(44));
    let middle = lanes.or(
        lanes.shift_right64::<44>(low),
        lanes.shift_left64::<20>(high),
    );
    [
        lanes.and(low, low_44),
        lanes.and(middle, low_44),
        lanes.shift_right64::<24>(high),
    ]
}

#[inline(always)]
fn times_5<L: Lanes>(lanes: L, number: L::Register) -> L::Register {
    lanes.add64(number, lanes.shift_left64::<2>(number))
}

const fn low_bits(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Poly1305 alone, over messages of whole blocks, for tests with chosen one-time keys.
pub(crate) struct Authenticate<'a> {
    /// r and s of each message.
    pub(crate) keys: &'a [[u8; 32]; LANES],
    pub(crate) messages: [&'a [u8]; LANES],
}

impl Computation for Authenticate<'_> {
    type Output = Tags;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Tags {
        let mut rows = [lanes.splat32(0); LANES];
        for n in 0..LANES {
            rows[n] = lanes.load_first(&self.keys[n]);
        }
        let mut mac = Mac::new(lanes, rows);
        mac.absorb_padded(&self.messages);
        mac.tags()
    }
}
