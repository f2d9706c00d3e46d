//! The ones'-complement sum of RFC 1071.
//!
//! A sum is kept folded to 16 bits, over big-endian words; a checksum is its complement. To subtract a
//! word, add its complement.

/// Sums `data` as big-endian 16-bit words; an odd last byte counts as the high half of a word.
#[inline]
pub fn sum(data: &[u8]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if data.len() >= WIDE && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, the only feature that the function requires.
        return unsafe { sum_avx2(data) };
    }
    sum_lanes(data)
}

/// Folds a sum of 16-bit words to 16 bits by adding the carries back in.
#[inline]
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// Sums the pseudo-header of TCP or UDP (RFC 9293 §3.1, RFC 8200 §8.1). `addresses` are the source and
/// the destination address, as in the IP header.
#[inline]
pub fn pseudo_header(addresses: &[u8], protocol: u8, transport_len: u16) -> u16 {
    fold(u32::from(sum(addresses)) + u32::from(protocol) + u32::from(transport_len))
}

/// Shortest data, in bytes, for which the AVX2 version pays for its call.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(data: &[u8]) -> u16 {
    sum_lanes(data)
}

/// Adds 32-bit words into 64-bit lanes, a loop that the compiler vectorizes. The byte order within a word
/// matters only for the final result (RFC 1071 §2 (B)).
#[inline(always)]
fn sum_lanes(data: &[u8]) -> u16 {
    let mut lanes = [0u64; 16];
    let (chunks, rest) = data.as_chunks::<64>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut total: u64 = lanes.iter().sum();

    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));

    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::from_be(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_sums_as_rfc_1071_does() {
        let bytes: Vec<u8> = (0..2100u32).map(|i| (i * 167 + i / 7) as u8).collect();
        for start in 0..32 {
            for len in 0..=2000 {
                let data = &bytes[start..start + len];
                assert!(same(sum(data), naive(data)), "start {start} len {len}");
                assert!(
                    same(sum_lanes(data), naive(data)),
                    "start {start} len {len}"
                );
            }
        }
    }

    #[test]
    fn sums_of_all_ones_do_not_overflow() {
        assert_eq!(sum(&[0xff; 65_535]), naive(&[0xff; 65_535]));
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_sum_as_rfc_1071_does(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000)) {
            assert!(same(sum(&data), naive(&data)));
        }

        #[test]
        fn folding_keeps_the_ones_complement_value(value: u32) {
            assert_eq!(u32::from(fold(value)) % 0xffff, value % 0xffff);
        }
    }

    #[test]
    #[ignore = "a measurement: run with --release --ignored --nocapture"]
    fn summing_a_full_segment_takes_tens_of_nanoseconds() {
        let data = std::hint::black_box([7u8; 1368]);
        let began = std::time::Instant::now();
        for _ in 0..1_000_000 {
            std::hint::black_box(sum(std::hint::black_box(&data)));
        }
        eprintln!("1368 bytes: {:.1} ns", began.elapsed().as_secs_f64() * 1e3);
    }

    /// Treats the two zeros of ones' complement as equal.
    fn same(a: u16, b: u16) -> bool {
        a % 0xffff == b % 0xffff
    }

    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}
