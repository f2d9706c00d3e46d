//! ChaCha20-Poly1305 (RFC 8439 §2.8) on 16 packets at a time, one lane each.
//!
//! Lengths are public: the kernel branches on them and on nothing else.

#![allow(
    clippy::needless_range_loop,
    reason = "one number is a lane in several arrays; closures would not be inlined for certain"
)]

mod chacha20;
mod lane;
mod poly1305;
mod text;

#[cfg(test)]
pub(crate) use chacha20::Cipher;
pub(crate) use lane::Lane;
pub(crate) use poly1305::{Authenticate, Tags};
pub(crate) use text::{Opening, Sealing, SealingInPlace, Text};

use crate::lanes::{Computation, LANES, Lanes, REGISTER};
use lane::{left, longest, shortest};

/// Encrypts or decrypts up to 16 packets, and computes the tag of each over its ciphertext.
pub(crate) fn crypt<'a, L: Lanes, T: Text>(
    lanes: L,
    packets: impl Iterator<Item = Lane<'a, T>>,
) -> Tags {
    let mut filled = std::array::from_fn(|_| Lane::idle());
    for (lane, packet) in filled.iter_mut().zip(packets) {
        *lane = packet;
    }
    lanes.run(Crypt(&mut filled))
}

struct Crypt<'a, 'b, T>(&'b mut [Lane<'a, T>; LANES]);

impl<T: Text> Computation for Crypt<'_, '_, T> {
    type Output = Tags;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Tags {
        let packets = self.0;
        let cipher = chacha20::Cipher::new(lanes, packets);
        let mut mac = poly1305::Mac::new(lanes, cipher.key_stream(0));

        let (mut aad, mut aad_len, mut text_len) = ([&[][..]; LANES], [0; LANES], [0; LANES]);
        for n in 0..LANES {
            aad[n] = packets[n].aad;
            aad_len[n] = packets[n].aad.len();
            text_len[n] = packets[n].text.len();
        }
        mac.absorb_padded(&aad);

        let whole_in_all = shortest(&text_len) / REGISTER;
        for block in 0..whole_in_all {
            let mut rows = cipher.key_stream(block as u32 + 1);
            for n in 0..LANES {
                rows[n] = packets[n].text.crypt(lanes, block, rows[n]);
            }
            mac.absorb_whole(rows);
        }
        for block in whole_in_all..longest(&text_len).div_ceil(REGISTER) {
            let mut rows = cipher.key_stream(block as u32 + 1);
            let left = left(&text_len, block);
            for n in 0..LANES {
                rows[n] = match left[n] {
                    0 => lanes.splat32(0),
                    1..REGISTER => packets[n].text.crypt_end(lanes, block, rows[n]),
                    _ => packets[n].text.crypt(lanes, block, rows[n]),
                };
            }
            mac.absorb(rows, &left);
        }
        mac.absorb_lengths(&aad_len, &text_len);
        mac.tags()
    }
}
