#![allow(unsafe_code)]

use std::{collections::HashSet, fs::File, hint::black_box, os::unix::fs::FileExt};

use crate::{
    Aead, Key, Open, SLOTS, Seal, SealInPlace, TAG,
    kernel::Cipher,
    lanes::{Array, Lanes, REGISTER},
    seam::Kernel,
    slot::lane,
};

const KEY: [u8; 32] = *b"a key that must not stay around!";
/// Three whole blocks and a part of one.
const LEN: usize = 200;
/// Bytes of stack to search: more than a batch uses, and less than a test has left.
const SEARCHED: usize = 256 << 10;

type Plain = [[u8; LEN]; SLOTS];
type Sealed = [[u8; LEN + TAG]; SLOTS];

#[test]
#[cfg_attr(miri, ignore = "reads below the stack; Miri cannot run ring")]
fn sealing_leaves_no_secret_behind() {
    each_kernel(|aead, key, plain| {
        let mut sealed = [[0; LEN + TAG]; SLOTS];
        let slots = plain.iter().zip(&mut sealed).zip(0..);
        let slots = slots.map(|((plain, sealed), n)| Seal::new(key, n, plain, sealed).unwrap());
        let mut slots: Vec<_> = slots.collect();
        assert_no_trace(&secrets(key, plain), || aead.seal(&mut slots));
    });
}

#[test]
#[cfg_attr(miri, ignore = "reads below the stack; Miri cannot run ring")]
fn sealing_in_place_leaves_no_secret_behind() {
    each_kernel(|aead, key, plain| {
        let mut packets = unsealed(plain);
        let slots = packets.iter_mut().zip(0..);
        let slots = slots.map(|(packet, n)| SealInPlace::new(key, n, packet).unwrap());
        let mut slots: Vec<_> = slots.collect();
        assert_no_trace(&secrets(key, plain), || aead.seal_in_place(&mut slots));
    });
}

#[test]
#[cfg_attr(miri, ignore = "reads below the stack; Miri cannot run ring")]
fn opening_leaves_no_secret_behind_nor_the_right_tag_of_a_forgery() {
    each_kernel(|aead, key, plain| {
        let mut sealed = unsealed(plain);
        let slots = sealed.iter_mut().zip(0..);
        let slots = slots.map(|(packet, n)| SealInPlace::new(key, n, packet).unwrap());
        aead.seal_in_place(&mut slots.collect::<Vec<_>>());
        let mut secrets = secrets(key, plain);
        for forgery in sealed.iter_mut().step_by(2) {
            let tag = &mut forgery[LEN..];
            secrets.extend(windows(tag));
            tag.iter_mut().for_each(|byte| *byte ^= 0xff);
        }

        let mut opened = [[0; LEN]; SLOTS];
        let slots = sealed.iter().zip(&mut opened).zip(0..);
        let slots = slots.map(|((sealed, opened), n)| Open::new(key, n, sealed, opened).unwrap());
        let mut slots: Vec<_> = slots.collect();
        assert_no_trace(&secrets, || {
            let opened = aead.open(&mut slots);
            assert!((0..SLOTS).all(|n| opened.is_authentic(n) == (n % 2 == 1)));
        });
    });
}

fn each_kernel(test: impl Fn(Aead, &Key, &Plain)) {
    let plain = std::array::from_fn(|n| std::array::from_fn(|at| (n * 89 + at * 7 + at / 9) as u8));
    // Leave out the kernel of plain arrays: it is for tests only, and uses more of the stack.
    for kernel in Kernel::all().into_iter().skip(1) {
        test(kernel.aead(), &Key::new(&KEY), &plain);
    }
}

fn unsealed(plain: &Plain) -> Sealed {
    plain.map(|plain| std::array::from_fn(|at| plain.get(at).copied().unwrap_or(0)))
}

/// All secrets of a batch, in pieces of 8 bytes as memory and registers may hold them.
fn secrets(key: &Key, plain: &Plain) -> HashSet<[u8; 8]> {
    let mut secrets: HashSet<_> = windows(&KEY).collect();
    // The words of the key, as the state has them in all lanes.
    secrets.extend(key.words.map(|word| joined(word, word)));
    secrets.extend(plain.iter().flat_map(|plain| windows(plain)));

    let cipher = Cipher::new(Array, &std::array::from_fn(|n| lane(key, n as u64, ())));
    for block in 0..=LEN.div_ceil(REGISTER) {
        let rows = cipher.key_stream(block as u32).map(|row| {
            let mut bytes = [0; REGISTER];
            Array.store(row, &mut bytes);
            bytes
        });
        secrets.extend(rows.iter().flat_map(|row| windows(row)));
        // The same word of neighbouring packets, as they are before the transposition.
        let words = rows.map(|row| std::array::from_fn(|n| word(&row, n)));
        for [a, b] in words.array_windows::<2>() {
            let pairs = a.iter().zip::<&[u32; 16]>(b);
            secrets.extend(pairs.map(|(a, b)| joined(*a, *b)));
        }
        if block == 0 {
            secrets.extend(rows.iter().flat_map(numbers_of_poly1305));
        }
    }
    secrets
}

/// r, its limbs, 20 times its limbs, and the limbs of s.
fn numbers_of_poly1305(one_time_key: &[u8; REGISTER]) -> Vec<[u8; 8]> {
    let numbers: &[[u8; 16]] = one_time_key.as_chunks().0;
    let r = u128::from_le_bytes(numbers[0]) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
    let limbs = |number: u128| [0, 44, 88].map(|bit| (number >> bit) as u64 & ((1 << 44) - 1));
    let of_r = limbs(r);
    let numbers = [
        &[r as u64, (r >> 64) as u64][..],
        &of_r,
        &of_r.map(|limb| 20 * limb),
        &limbs(u128::from_le_bytes(numbers[1])),
    ];
    numbers.concat().into_iter().map(u64::to_le_bytes).collect()
}

fn windows(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> {
    bytes.array_windows().copied()
}

fn word(bytes: &[u8; REGISTER], n: usize) -> u32 {
    u32::from_le_bytes(bytes.as_chunks().0[n])
}

fn joined(low: u32, high: u32) -> [u8; 8] {
    (u64::from(low) | u64::from(high) << 32).to_le_bytes()
}

fn assert_no_trace(secrets: &HashSet<[u8; 8]>, batch: impl FnOnce()) {
    let mut registers = [[0; REGISTER]; 32];
    clear_stack();
    batch();
    #[cfg(target_arch = "x86_64")]
    read_registers(&mut registers);
    let stack = stack_below();
    let found = |place: &[u8]| windows(place).filter(|it| secrets.contains(it)).count();
    assert_eq!(found(&stack), 0, "on the stack");
    assert_eq!(found(registers.as_flattened()), 0, "in registers");
}

#[inline(never)]
fn clear_stack() {
    black_box([0_u8; SEARCHED].as_mut_slice());
}

/// The stack below the caller's frame. The kernel reads it, as AddressSanitizer forbids this thread to.
#[inline(never)]
fn stack_below() -> Vec<u8> {
    let marker = 0_u8;
    let top = black_box(&raw const marker).addr();
    let mut below = vec![0; SEARCHED];
    let memory = File::open("/proc/self/mem").unwrap();
    let start = (top - SEARCHED) as u64;
    memory.read_exact_at(&mut below, start).unwrap();
    below
}

/// Stores zmm0 to zmm31. Only for a CPU that can run the AVX-512 kernel.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn read_registers(into: &mut [[u8; REGISTER]; 32]) {
    macro_rules! store {
        ($($n:literal)*) => {
            // SAFETY: the CPU has AVX-512, or no batch would run here. 32 stores of 64 bytes exactly fill
            // the array.
            unsafe {
                std::arch::asm!(
                    $(concat!("vmovdqu64 [{into} + 64 * ", $n, "], zmm", $n),)*
                    into = in(reg) into,
                    options(nostack, preserves_flags),
                );
            }
        };
    }
    store!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}
