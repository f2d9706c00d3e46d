//! Lanes as AVX-512 registers. All `unsafe` code of this crate outside of tests is here.

#![allow(unsafe_code)]

use std::arch::{asm, is_x86_feature_detected, x86_64::*};

use super::{Computation, Lanes, REGISTER};

/// Proves that this CPU has AVX-512 F, BW, VL, DQ and IFMA, and that the operating system saves their
/// registers: only [`detect`](Self::detect) creates a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512ifma");
        is_there.then_some(Self(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512ifma")]
fn run<C: Computation>(lanes: Avx512, computation: C) -> C::Output {
    computation.run(lanes)
}

#[target_feature(enable = "avx512f,avx512vl")]
fn clear_registers() {
    macro_rules! clear {
        ($($n:literal)*) => {
            // SAFETY: the function enables the instructions. They touch neither memory nor flags, and
            // `clobber_abi` declares that they change every vector register.
            unsafe {
                asm!(
                    "vzeroupper",
                    $(concat!("vpxord xmm", $n, ", xmm", $n, ", xmm", $n),)*
                    clobber_abi("sysv64"),
                    options(nomem, nostack, preserves_flags),
                );
            }
        };
    }
    // Writing 128 bits of a register zeroes the rest of it. VZEROALL clears only 16, and takes longer.
    clear!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

/// Intrinsics that neither read nor write memory.
macro_rules! compute {
    ($computed:expr) => {{
        // SAFETY: the method has an `Avx512`, so this CPU has all features that were detected, and the
        // intrinsics require no others.
        unsafe { $computed }
    }};
}

impl Lanes for Avx512 {
    type Register = __m512i;

    fn run<C: Computation>(self, computation: C) -> C::Output {
        // SAFETY: `self` proves that this CPU has the features that the function enables.
        unsafe { run(self, computation) }
    }

    fn clear_registers(self) {
        // SAFETY: `self` proves that this CPU has the features that the function enables.
        unsafe { clear_registers() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8; REGISTER]) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instruction. It reads the 64 bytes that the reference
        // points to, at any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_first(self, bytes: &[u8]) -> __m512i {
        let mask = first(bytes.len());
        // SAFETY: `self` proves that the CPU has the instruction. It reads byte n where bit n of the mask
        // is set: `first` sets the lowest `bytes.len()` bits at most. Others are not accessed, and
        // raise no fault.
        unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, register: __m512i, bytes: &mut [u8; REGISTER]) {
        // SAFETY: `self` proves that the CPU has the instruction. It writes the 64 bytes that the exclusive
        // reference points to, at any alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), register) }
    }

    #[inline(always)]
    fn store_first(self, register: __m512i, bytes: &mut [u8]) {
        let mask = first(bytes.len());
        // SAFETY: `self` proves that the CPU has the instruction. It writes byte n where bit n of the mask
        // is set: `first` sets the lowest `bytes.len()` bits at most. Others are not accessed, and
        // raise no fault.
        unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, register) }
    }

    #[inline(always)]
    fn keep_first(self, register: __m512i, len: usize) -> __m512i {
        compute!(_mm512_maskz_mov_epi8(first(len), register))
    }

    #[inline(always)]
    fn splat32(self, value: u32) -> __m512i {
        compute!(_mm512_set1_epi32(value.cast_signed()))
    }

    #[inline(always)]
    fn splat64(self, value: u64) -> __m512i {
        compute!(_mm512_set1_epi64(value.cast_signed()))
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_xor_si512(a, b))
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn add32(self, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(self, a: __m512i) -> __m512i {
        compute!(_mm512_rol_epi32::<BITS>(a))
    }

    #[inline(always)]
    fn add64(self, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_add_epi64(a, b))
    }

    #[inline(always)]
    fn shift_left64<const BITS: u32>(self, a: __m512i) -> __m512i {
        compute!(_mm512_slli_epi64::<BITS>(a))
    }

    #[inline(always)]
    fn shift_right64<const BITS: u32>(self, a: __m512i) -> __m512i {
        compute!(_mm512_srli_epi64::<BITS>(a))
    }

    #[inline(always)]
    fn multiply_add_low(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_madd52lo_epu64(sum, a, b))
    }

    #[inline(always)]
    fn multiply_add_high(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        compute!(_mm512_madd52hi_epu64(sum, a, b))
    }

    #[inline(always)]
    fn select64(self, mask: u8, then: __m512i, otherwise: __m512i) -> __m512i {
        compute!(_mm512_mask_mov_epi64(otherwise, mask, then))
    }

    // A part is 128 bits, which is 4 lanes: transpose within the parts, then the parts.
    #[inline(always)]
    fn transpose32(self, rows: [__m512i; 16]) -> [__m512i; 16] {
        let mut out = rows;
        for group in 0..4 {
            let first = 4 * group;
            let (a, b, c, d) = (
                rows[first],
                rows[first + 1],
                rows[first + 2],
                rows[first + 3],
            );
            let ab = compute!(_mm512_unpacklo_epi32(a, b));
            let cd = compute!(_mm512_unpacklo_epi32(c, d));
            out[first] = compute!(_mm512_unpacklo_epi64(ab, cd));
            out[first + 1] = compute!(_mm512_unpackhi_epi64(ab, cd));
            let ab = compute!(_mm512_unpackhi_epi32(a, b));
            let cd = compute!(_mm512_unpackhi_epi32(c, d));
            out[first + 2] = compute!(_mm512_unpacklo_epi64(ab, cd));
            out[first + 3] = compute!(_mm512_unpackhi_epi64(ab, cd));
        }
        for n in 0..4 {
            let parts = self.transpose128([out[n], out[4 + n], out[8 + n], out[12 + n]]);
            for part in 0..4 {
                out[4 * part + n] = parts[part];
            }
        }
        out
    }

    // As above, with 2 lanes per part.
    #[inline(always)]
    fn transpose64(self, rows: [__m512i; 8]) -> [__m512i; 8] {
        let (mut even, mut odd) = ([rows[0]; 4], [rows[0]; 4]);
        for pair in 0..4 {
            let (a, b) = (rows[2 * pair], rows[2 * pair + 1]);
            even[pair] = compute!(_mm512_unpacklo_epi64(a, b));
            odd[pair] = compute!(_mm512_unpackhi_epi64(a, b));
        }
        let (even, odd) = (self.transpose128(even), self.transpose128(odd));
        let mut out = rows;
        for part in 0..4 {
            out[2 * part] = even[part];
            out[2 * part + 1] = odd[part];
        }
        out
    }
}

impl Avx512 {
    /// Part c of 128 bits in row r goes to part r in row c.
    #[inline(always)]
    fn transpose128(self, [a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        let ab = compute!(_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b));
        let cd = compute!(_mm512_shuffle_i64x2::<0b01_00_01_00>(c, d));
        let ab_high = compute!(_mm512_shuffle_i64x2::<0b11_10_11_10>(a, b));
        let cd_high = compute!(_mm512_shuffle_i64x2::<0b11_10_11_10>(c, d));
        [
            compute!(_mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd)),
            compute!(_mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd)),
            compute!(_mm512_shuffle_i64x2::<0b10_00_10_00>(ab_high, cd_high)),
            compute!(_mm512_shuffle_i64x2::<0b11_01_11_01>(ab_high, cd_high)),
        ]
    }
}

/// A mask of the first `len` bytes of a register; `len` is at most 63.
#[inline(always)]
fn first(len: usize) -> __mmask64 {
    debug_assert!(len < REGISTER);
    !(u64::MAX << (len % REGISTER))
}
