//! Seals and opens up to 16 packets at a time with ChaCha20-Poly1305, as WireGuard's data messages use it.
//!
//! A single packet leaves most of a wide register idle, or costs time to combine its parts. 16 packets fill
//! it: each has a 32-bit lane for ChaCha20, and a 64-bit lane of one of two registers for Poly1305. So a
//! batch of equal lengths takes less than half of the time per packet.
//!
//! # Use
//!
//! 1. Choose the implementation at start: [`Aead::auto`] tests the batch once and falls back to ring.
//!    Log [`Aead::implementation`] and [`Aead::why_ring`].
//! 2. Create a [`Key`] for each session and direction, in the place where it stays.
//! 3. Outbound: stage up to [`SLOTS`] packets, make a [`SealInPlace`] (or [`Seal`]) of each, with the
//!    counter that the session has reserved for it, and [seal](Aead::seal_in_place) them.
//! 4. Inbound: make an [`Open`] of each datagram and the slot for its plaintext, and [open](Aead::open)
//!    them. Commit only packets that are [authentic](Opened::is_authentic).
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
//! - The kernel (`kernel.rs`) is written once, over a trait for registers (`lanes.rs`). That is AVX-512, or
//!   plain arrays, on which it runs under Miri and in tests on every CPU. Only `lanes/avx512.rs` is `unsafe`.
//! - Packets in a batch may differ in key and length. Lanes that are done idle until the longest is, so
//!   packets for which a batch does not pay go by ring (`dispatch.rs`), as all do without AVX-512 IFMA.
//! - No branch and no address depends on a secret: README.md argues it file by file.
//! - Traces of a batch on the stack and in vector registers are wiped. Traces of ring on the stack, and
//!   registers that an interrupt saves, are out of reach.
//!
//! Deliberately left out: additional data, and nonces other than counters, which data messages do not use;
//! the assignment of counters and the replay window, which are up to the session; AVX2 and NEON, where
//! ring is as fast.

#![deny(unsafe_code)]

mod bounds;
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

pub use bounds::{MAX_PACKET, SLOTS, TAG};
pub use key::Key;
pub use slot::{Open, Seal, SealInPlace, WrongLength};

use std::fmt;

use dispatch::Costs;
use engine::Engine;

/// An implementation of ChaCha20-Poly1305, chosen once.
#[derive(Clone, Copy, Debug)]
pub struct Aead {
    engine: Engine,
    costs: Costs,
    why_ring: Option<WhyRing>,
}

/// The reason why every packet goes by ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRing {
    /// ring was chosen.
    Chosen,
    /// The CPU or its operating system lacks AVX-512 F, BW, VL, DQ or IFMA.
    NoAvx512,
    /// The self-test of the batch gave a wrong result.
    SelfTestFailed,
}

impl Aead {
    /// The batch if this CPU can run it and its self-test succeeds; else ring.
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

    /// ring for every packet.
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

    /// The name of the implementation, for logs and statistics.
    #[must_use]
    pub fn implementation(&self) -> &'static str {
        match self.engine {
            Engine::Ring => "ring",
            Engine::Array(_) => "batch (arrays)",
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512(_) => "batch (AVX-512)",
        }
    }

    /// The reason why every packet goes by ring; `None` if some go by batch.
    #[must_use]
    pub fn why_ring(&self) -> Option<WhyRing> {
        self.why_ring
    }

    /// Seals each packet into its other buffer.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`] packets, or one was sealed before.
    pub fn seal(&self, slots: &mut [Seal<'_>]) {
        self.engine.process(self.costs, slots);
    }

    /// Seals each packet in place.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`] packets, or one was sealed before.
    pub fn seal_in_place(&self, slots: &mut [SealInPlace<'_>]) {
        self.engine.process(self.costs, slots);
    }

    /// Opens each packet into its other buffer, and zeroes the plaintext of a packet whose tag is wrong.
    ///
    /// Until it returns, a buffer may hold plaintext that is not authentic.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`] packets.
    pub fn open(&self, slots: &mut [Open<'_>]) -> Opened {
        Opened(self.engine.process(self.costs, slots))
    }
}

/// The result of opening a batch: the packets that are authentic.
#[must_use = "a packet whose tag is wrong must not be used"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened(u16);

impl Opened {
    /// Returns whether the tag of the packet in slot `n` is right, regardless of the other slots.
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
