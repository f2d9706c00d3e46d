//! The text of a packet, encrypted or decrypted 64 bytes at a time.

use crate::lanes::{Lanes, REGISTER};

/// A text that is encrypted or decrypted.
pub(crate) trait Text: Default {
    /// Its length in bytes, which the operation does not change.
    fn len(&self) -> usize;

    /// Encrypts or decrypts block `n`, which is whole, and returns the ciphertext.
    fn crypt<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register;

    /// Does the same with a last block of fewer than 64 bytes; the ciphertext is zero beyond its end.
    fn crypt_end<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register;
}

/// Plaintext that is encrypted into another buffer of equal length.
#[derive(Default)]
pub(crate) struct Sealing<'a> {
    pub(crate) plaintext: &'a [u8],
    pub(crate) ciphertext: &'a mut [u8],
}

/// Plaintext that the ciphertext replaces.
#[derive(Default)]
pub(crate) struct SealingInPlace<'a>(pub(crate) &'a mut [u8]);

/// Ciphertext that is decrypted into another buffer of equal length.
#[derive(Default)]
pub(crate) struct Opening<'a> {
    pub(crate) ciphertext: &'a [u8],
    pub(crate) plaintext: &'a mut [u8],
}

impl Text for Sealing<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.plaintext.len()
    }

    #[inline(always)]
    fn crypt<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let plain = lanes.load(&self.plaintext.as_chunks().0[n]);
        let sealed = lanes.xor(plain, key_stream);
        lanes.store(sealed, &mut self.ciphertext.as_chunks_mut().0[n]);
        sealed
    }

    #[inline(always)]
    fn crypt_end<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let from = &self.plaintext[n * REGISTER..];
        let sealed = lanes.xor(lanes.load_first(from), key_stream);
        let sealed = lanes.keep_first(sealed, from.len());
        lanes.store_first(sealed, &mut self.ciphertext[n * REGISTER..]);
        sealed
    }
}

impl Text for SealingInPlace<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn crypt<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let block = &mut self.0.as_chunks_mut().0[n];
        let sealed = lanes.xor(lanes.load(block), key_stream);
        lanes.store(sealed, block);
        sealed
    }

    #[inline(always)]
    fn crypt_end<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let end = &mut self.0[n * REGISTER..];
        let sealed = lanes.xor(lanes.load_first(end), key_stream);
        let sealed = lanes.keep_first(sealed, end.len());
        lanes.store_first(sealed, end);
        sealed
    }
}

impl Text for Opening<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ciphertext.len()
    }

    #[inline(always)]
    fn crypt<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let sealed = lanes.load(&self.ciphertext.as_chunks().0[n]);
        let plain = lanes.xor(sealed, key_stream);
        lanes.store(plain, &mut self.plaintext.as_chunks_mut().0[n]);
        sealed
    }

    #[inline(always)]
    fn crypt_end<L: Lanes>(&mut self, lanes: L, n: usize, key_stream: L::Register) -> L::Register {
        let from = &self.ciphertext[n * REGISTER..];
        let sealed = lanes.load_first(from);
        let plain = lanes.xor(sealed, key_stream);
        lanes.store_first(plain, &mut self.plaintext[n * REGISTER..]);
        sealed
    }
}

/// Block `n` of `bytes`; the register is zero beyond their end.
#[inline(always)]
pub(crate) fn row<L: Lanes>(lanes: L, bytes: &[u8], n: usize) -> L::Register {
    let (blocks, end) = bytes.as_chunks();
    match blocks.get(n) {
        Some(block) => lanes.load(block),
        None if n == blocks.len() => lanes.load_first(end),
        None => lanes.splat32(0),
    }
}
