//! The packets of a batch: their buffers, and the handling of their tags.

use std::{fmt, hint::black_box};

use ring::aead::{Aad, Nonce, Tag};

use crate::{
    Key, MAX_PACKET, TAG,
    kernel::{Lane, Opening, Sealing, SealingInPlace, Text},
};

/// A packet to seal into another buffer.
pub struct Seal<'a> {
    rest: ToSeal<'a>,
    plaintext: &'a [u8],
    ciphertext: &'a mut [u8],
}

/// A packet to seal in place.
pub struct SealInPlace<'a> {
    rest: ToSeal<'a>,
    text: &'a mut [u8],
}

/// A packet to open into another buffer.
pub struct Open<'a> {
    key: &'a Key,
    counter: u64,
    ciphertext: &'a [u8],
    tag: &'a [u8; TAG],
    plaintext: &'a mut [u8],
}

/// The parts of a packet to seal, without its text.
struct ToSeal<'a> {
    key: &'a Key,
    counter: u64,
    tag: &'a mut [u8; TAG],
    is_sealed: bool,
}

/// Implements `Debug` without showing key or text.
macro_rules! debug {
    ($($slot:ident { $($counter:ident).+, $text:ident })*) => {$(
        impl fmt::Debug for $slot<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($slot))
                    .field("counter", &self.$($counter).+)
                    .field("len", &self.$text.len())
                    .finish_non_exhaustive()
            }
        }
    )*};
}

debug! {
    Seal { rest.counter, plaintext }
    SealInPlace { rest.counter, text }
    Open { counter, ciphertext }
}

/// A sealed packet is not exactly [`TAG`] bytes longer than the plaintext, or the plaintext is longer
/// than [`MAX_PACKET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sealed packet must be {TAG} bytes longer than its plaintext of at most {MAX_PACKET}")]
pub struct WrongLength;

impl<'a> Seal<'a> {
    /// A packet to seal from `plaintext` into `sealed`, which receives the ciphertext and then the tag.
    ///
    /// `counter` is the counter of the message (WireGuard paper §5.4.6). Never seal two packets with the
    /// same key and counter.
    ///
    /// # Errors
    /// [`WrongLength`] if the lengths do not fit.
    pub fn new(
        key: &'a Key,
        counter: u64,
        plaintext: &'a [u8],
        sealed: &'a mut [u8],
    ) -> Result<Self, WrongLength> {
        let (ciphertext, tag) = sealed.split_last_chunk_mut().ok_or(WrongLength)?;
        check(plaintext, ciphertext)?;
        Ok(Self {
            rest: ToSeal::new(key, counter, tag),
            plaintext,
            ciphertext,
        })
    }
}

impl<'a> SealInPlace<'a> {
    /// A packet to seal in place: all of `packet` but the last [`TAG`] bytes, which receive the tag.
    ///
    /// `counter` is as in [`Seal::new`].
    ///
    /// # Errors
    /// [`WrongLength`] if the lengths do not fit.
    pub fn new(key: &'a Key, counter: u64, packet: &'a mut [u8]) -> Result<Self, WrongLength> {
        let (text, tag) = packet.split_last_chunk_mut().ok_or(WrongLength)?;
        check(text, text)?;
        Ok(Self {
            rest: ToSeal::new(key, counter, tag),
            text,
        })
    }
}

impl<'a> Open<'a> {
    /// A packet to open from `sealed`, a ciphertext and its tag, into `plaintext`.
    ///
    /// `counter` is the one in the packet's header.
    ///
    /// # Errors
    /// [`WrongLength`] if the lengths do not fit.
    pub fn new(
        key: &'a Key,
        counter: u64,
        sealed: &'a [u8],
        plaintext: &'a mut [u8],
    ) -> Result<Self, WrongLength> {
        let (ciphertext, tag) = sealed.split_last_chunk().ok_or(WrongLength)?;
        check(plaintext, ciphertext)?;
        Ok(Self {
            key,
            counter,
            ciphertext,
            tag,
            plaintext,
        })
    }
}

fn check(plaintext: &[u8], ciphertext: &[u8]) -> Result<(), WrongLength> {
    let fits = plaintext.len() == ciphertext.len() && plaintext.len() <= MAX_PACKET;
    fits.then_some(()).ok_or(WrongLength)
}

/// The engine's operations on a packet of any of these types.
pub(crate) trait Slot {
    type Text<'t>: Text
    where
        Self: 't;

    /// Call before any other method.
    ///
    /// # Panics
    /// If it was sealed before: that would use its counter twice.
    fn begin(&mut self);
    /// Bytes of the text.
    fn len(&self) -> usize;
    /// The packet as the kernel takes it.
    fn lane(&mut self) -> Lane<'_, Self::Text<'_>>;
    /// Takes the tag that the kernel has computed; returns whether the packet is authentic.
    fn finish(&mut self, tag: u128) -> bool;
    /// Seals or opens the packet by ring; returns whether it is authentic.
    fn by_ring(&mut self) -> bool;
}

impl Slot for Seal<'_> {
    type Text<'t>
        = Sealing<'t>
    where
        Self: 't;

    fn begin(&mut self) {
        self.rest.begin();
    }

    fn len(&self) -> usize {
        self.plaintext.len()
    }

    fn lane(&mut self) -> Lane<'_, Sealing<'_>> {
        let text = Sealing {
            plaintext: self.plaintext,
            ciphertext: self.ciphertext,
        };
        self.rest.lane(text)
    }

    fn finish(&mut self, tag: u128) -> bool {
        *self.rest.tag = tag.to_le_bytes();
        true
    }

    fn by_ring(&mut self) -> bool {
        self.ciphertext.copy_from_slice(self.plaintext);
        self.rest.by_ring(self.ciphertext)
    }
}

impl Slot for SealInPlace<'_> {
    type Text<'t>
        = SealingInPlace<'t>
    where
        Self: 't;

    fn begin(&mut self) {
        self.rest.begin();
    }

    fn len(&self) -> usize {
        self.text.len()
    }

    fn lane(&mut self) -> Lane<'_, SealingInPlace<'_>> {
        self.rest.lane(SealingInPlace(self.text))
    }

    fn finish(&mut self, tag: u128) -> bool {
        *self.rest.tag = tag.to_le_bytes();
        true
    }

    fn by_ring(&mut self) -> bool {
        self.rest.by_ring(self.text)
    }
}

impl Slot for Open<'_> {
    type Text<'t>
        = Opening<'t>
    where
        Self: 't;

    fn begin(&mut self) {}

    fn len(&self) -> usize {
        self.ciphertext.len()
    }

    fn lane(&mut self) -> Lane<'_, Opening<'_>> {
        let text = Opening {
            ciphertext: self.ciphertext,
            plaintext: self.plaintext,
        };
        lane(self.key, self.counter, text)
    }

    fn finish(&mut self, tag: u128) -> bool {
        // The barrier keeps the compiler from comparing the tags in parts and stopping early.
        let difference = black_box(tag ^ u128::from_le_bytes(*self.tag));
        let is_authentic = difference == 0;
        if !is_authentic {
            self.plaintext.fill(0);
        }
        is_authentic
    }

    fn by_ring(&mut self) -> bool {
        self.plaintext.copy_from_slice(self.ciphertext);
        let (nonce, tag) = (nonce(self.counter), Tag::from(*self.tag));
        let ring = &self.key.ring;
        let opened = ring.open_in_place_separate_tag(nonce, Aad::empty(), tag, self.plaintext, 0..);
        let is_authentic = opened.is_ok();
        if !is_authentic {
            self.plaintext.fill(0);
        }
        is_authentic
    }
}

impl<'a> ToSeal<'a> {
    fn new(key: &'a Key, counter: u64, tag: &'a mut [u8; TAG]) -> Self {
        Self {
            key,
            counter,
            tag,
            is_sealed: false,
        }
    }

    fn begin(&mut self) {
        assert!(!self.is_sealed, "a packet is sealed once");
        self.is_sealed = true;
    }

    fn lane<T>(&self, text: T) -> Lane<'_, T> {
        lane(self.key, self.counter, text)
    }

    fn by_ring(&mut self, text: &mut [u8]) -> bool {
        *self.tag = seal_by_ring(self.key, self.counter, text);
        true
    }
}

/// A packet without additional data, whose nonce is 32 zero bits and the counter in little-endian
/// (WireGuard paper §5.4).
pub(crate) fn lane<T>(key: &Key, counter: u64, text: T) -> Lane<'_, T> {
    Lane {
        key: &key.words,
        nonce: [0, counter as u32, (counter >> 32) as u32],
        aad: &[],
        text,
    }
}

pub(crate) fn seal_by_ring(key: &Key, counter: u64, text: &mut [u8]) -> [u8; TAG] {
    let sealed = key
        .ring
        .seal_in_place_separate_tag(nonce(counter), Aad::empty(), text);
    // INVARIANT: ring refuses only texts longer than 256 GiB.
    let sealed = sealed.expect("the packet is not too long");
    sealed.as_ref().try_into().expect("a tag has 16 bytes")
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}
