//! Seals and opens up to 16 packets at a time with ChaCha20-Poly1305, as WireGuard's data messages use it.
//!
//! A lone packet leaves most of a wide register idle or spends time combining its parts. 16 packets fill
//! it: each has a lane of 32 bits for ChaCha20 and one of 64 bits, in two registers, for Poly1305. So a
//! batch of equal lengths takes less than half of the time per packet.
//!
//! # Use
//!
//! 1. Choose the implementation at start: [`Aead::auto`] tests the batch once and falls back to ring.
//!    Log [`Aead::implementation`] and [`Aead::why_ring`].
//! 2. Make a [`Key`] for each session and direction, where it stays.
//! 3. Outbound: stage up to [`SLOTS`] packets, make a [`SealInPlace`] (or [`Seal`]) of each, with the
//!    counter that the session reserved for it, and [seal](Aead::seal_in_place) them.
//! 4. Inbound: make an [`Open`] of each datagram and the slot that its plaintext goes to, and
//!    [open](Aead::open) them. Commit only what [`Opened`] says is authentic.
//!
//! ```
//! use convoy_aead::{Aead, Key, Open, SealInPlace, TAG};
//!
//! let (aead, key) = (Aead::auto(), Key::new(&[7; 32]));
//! let mut packet = [0; 64 + TAG];
//! packet[..5].copy_from_slice(b"hello");
//! aead.seal_in_place(&mut [SealInPlace::new(&key, 0, &mut packet)?]);
//!
//! let mut plaintext = [0; 64];
//! let opened = aead.open(&mut [Open::new(&key, 0, &packet, &mut plaintext)?]);
//! assert!(opened.is_authentic(0));
//! assert_eq!(&plaintext[..5], b"hello");
//! # Ok::<(), convoy_aead::WrongLength>(())
//! ```
//!
//! # Design
//!
//! - The kernel (`kernel.rs`) is written once, over registers that are a trait (`lanes.rs`): AVX-512, or
//!   plain arrays, which run it under Miri and in tests on every CPU. Only `lanes/avx512.rs` is `unsafe`.
//! - Packets in a batch may differ in key and length. Lanes that have ended idle until the longest ends, so
//!   packets for which that does not pay go by ring (`dispatch.rs`), as all do without AVX-512 IFMA.
//! - Nothing secret decides a branch or an address: README.md argues it line by line.
//! - What the batch leaves on the stack and in vector registers is wiped. Out of reach are what ring leaves on
//!   the stack, and what an interrupt saves.
//!
//! Deliberately left out: additional data and nonces other than counters, which data messages do not have;
//! counters that are never reused and the replay window, which are the session's; AVX2 and NEON, where ring
//! is as fast.

#![deny(unsafe_code)]

mod dispatch;
mod engine;
mod kernel;
mod key;
mod lanes;
#[doc(hidden)]
pub mod seam;
#[cfg(any(target_arch = "x86_64", test))]
mod self_test;
mod slot;
pub mod wipe;

pub use key::Key;
pub use slot::{Open, Seal, SealInPlace, WrongLength};

use std::fmt;

use dispatch::Costs;
use engine::Engine;

/// Packets in a batch, at most.
pub const SLOTS: usize = 16;

/// Bytes of the tag after a ciphertext.
pub const TAG: usize = 16;

/// Bytes of a plaintext, at most: no UDP payload is longer.
pub const MAX_PACKET: usize = 65_535 - TAG;

/// An implementation of ChaCha20-Poly1305, chosen once.
#[derive(Clone, Copy, Debug)]
pub struct Aead {
    engine: Engine,
    costs: Costs,
    why_ring: Option<WhyRing>,
}

/// Why every packet goes by ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRing {
    /// It was asked for.
    Chosen,
    /// The CPU or its operating system lacks AVX-512 F, BW, VL, DQ or IFMA.
    NoAvx512,
    /// The batch computed something wrong when it was tested.
    SelfTestFailed,
}

impl Aead {
    /// The batch where this CPU can run it and a test with known answers succeeds, or else ring.
    ///
    /// Takes less than a millisecond.
    #[must_use]
    pub fn auto() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(lanes) = lanes::Avx512::detect() {
            return match self_test::passes(lanes) {
                true => Self {
                    engine: Engine::Avx512(lanes),
                    costs: Costs::MEASURED,
                    why_ring: None,
                },
                false => Self::by_ring(WhyRing::SelfTestFailed),
            };
        }
        Self::by_ring(WhyRing::NoAvx512)
    }

    /// Ring for every packet.
    #[must_use]
    pub fn ring() -> Self {
        Self::by_ring(WhyRing::Chosen)
    }

    fn by_ring(why: WhyRing) -> Self {
        Self {
            engine: Engine::Ring,
            costs: Costs::MEASURED,
            why_ring: Some(why),
        }
    }

    /// A name of the implementation, for logs and statistics.
    #[must_use]
    pub fn implementation(&self) -> &'static str {
        match self.engine {
            Engine::Ring => "ring",
            Engine::Array(_) => "batch (arrays)",
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512(_) => "batch (AVX-512)",
        }
    }

    /// Why every packet goes by ring; `None` if batches do not.
    #[must_use]
    pub fn why_ring(&self) -> Option<WhyRing> {
        self.why_ring
    }

    /// Seals each packet into its other memory.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`], or one was sealed before.
    pub fn seal(&self, slots: &mut [Seal<'_>]) {
        self.engine.process(self.costs, slots);
    }

    /// Seals each packet in place.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`], or one was sealed before.
    pub fn seal_in_place(&self, slots: &mut [SealInPlace<'_>]) {
        self.engine.process(self.costs, slots);
    }

    /// Opens each packet into its other memory. A plaintext whose tag is wrong is zeros when this returns.
    ///
    /// Until then unauthenticated text stands there: nobody else may read that memory meanwhile.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`].
    pub fn open(&self, slots: &mut [Open<'_>]) -> Opened {
        Opened(self.engine.process(self.costs, slots))
    }
}

/// Which packets of a batch are authentic.
#[must_use = "a packet whose tag is wrong must not be used"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened(u16);

impl Opened {
    /// Whether the tag of the packet in slot `n` is right. No other slot of the batch matters.
    #[must_use]
    pub fn is_authentic(self, n: usize) -> bool {
        n < SLOTS && self.0 >> n & 1 == 1
    }
}

impl fmt::Display for WhyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen => "ring was chosen",
            Self::NoAvx512 => "the CPU has no AVX-512 IFMA",
            Self::SelfTestFailed => "the self-test of the batch failed",
        })
    }
}
