//! Registers of 512 bits, and the operations on them over which the kernel is generic.

mod array;
#[cfg(target_arch = "x86_64")]
mod avx512;

pub(crate) use array::Array;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;

/// Lanes of 32 bits in a register: packets in a batch.
pub(crate) const LANES: usize = 16;

/// Bytes in a register.
pub(crate) const REGISTER: usize = 64;

/// An instruction set. A value of it proves that this CPU has the instructions.
///
/// A register is 16 lanes of 32 bits, 8 lanes of 64 bits or 64 bytes; lane 0 and byte 0 are the least
/// significant. No method branches on the content of a register or indexes memory by it.
pub(crate) trait Lanes: Copy {
    /// 512 bits.
    type Register: Copy;

    /// Runs `computation` in one function that is compiled for this instruction set.
    ///
    /// Everything that `computation` calls must be `#[inline(always)]`. Otherwise it would be compiled
    /// without these instructions, and every operation would become a call.
    fn run<C: Computation>(self, computation: C) -> C::Output;

    /// Zeroes the registers of the CPU, which may still hold key streams, one-time keys and tags.
    fn clear_registers(self) {}

    fn load(self, bytes: &[u8; REGISTER]) -> Self::Register;
    /// Loads fewer than 64 bytes; the rest of the register is zero.
    fn load_first(self, bytes: &[u8]) -> Self::Register;
    fn store(self, register: Self::Register, bytes: &mut [u8; REGISTER]);
    /// Stores the first bytes of the register, fewer than 64.
    fn store_first(self, register: Self::Register, bytes: &mut [u8]);
    /// The first `len` bytes, at most 63; the rest is zero.
    fn keep_first(self, register: Self::Register, len: usize) -> Self::Register;

    fn splat32(self, value: u32) -> Self::Register;
    fn splat64(self, value: u64) -> Self::Register;

    fn xor(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn and(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn or(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Adds modulo 2³².
    fn add32(self, a: Self::Register, b: Self::Register) -> Self::Register;
    /// Rotates each lane of 32 bits to the left.
    fn rotate32<const BITS: i32>(self, a: Self::Register) -> Self::Register;

    /// Adds modulo 2⁶⁴.
    fn add64(self, a: Self::Register, b: Self::Register) -> Self::Register;
    fn shift_left64<const BITS: u32>(self, a: Self::Register) -> Self::Register;
    fn shift_right64<const BITS: u32>(self, a: Self::Register) -> Self::Register;
    /// Adds to `sum` the low 52 bits of the product of the low 52 bits of `a` and `b`.
    fn multiply_add_low(
        self,
        sum: Self::Register,
        a: Self::Register,
        b: Self::Register,
    ) -> Self::Register;
    /// Adds to `sum` the high 52 bits of the product of the low 52 bits of `a` and `b`.
    fn multiply_add_high(
        self,
        sum: Self::Register,
        a: Self::Register,
        b: Self::Register,
    ) -> Self::Register;
    /// Takes lane n of 64 bits from `then` where bit n is set in `mask`, which is public.
    fn select64(self, mask: u8, then: Self::Register, otherwise: Self::Register) -> Self::Register;

    /// Lane c of 32 bits in row r goes to lane r in row c.
    fn transpose32(self, rows: [Self::Register; 16]) -> [Self::Register; 16];
    /// Lane c of 64 bits in row r goes to lane r in row c.
    fn transpose64(self, rows: [Self::Register; 8]) -> [Self::Register; 8];
}

/// A computation for [`Lanes::run`].
pub(crate) trait Computation {
    /// The result.
    type Output;

    /// Computes the result with the instructions of `lanes`. Must be `#[inline(always)]`.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}
