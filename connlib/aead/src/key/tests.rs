#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::*;

const KEY: [u8; 32] = *b"a key that must not stay around!";

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn dropping_a_key_wipes_it_and_the_copy_of_ring() {
    let mut place = Box::new(MaybeUninit::uninit());
    place.write(Key::new(&KEY));
    let is_key = |bytes: &&[u8]| **bytes == KEY;
    let held = memory(&place);
    assert_eq!(
        held.windows(KEY.len()).filter(is_key).count(),
        2,
        "ours and ring's"
    );

    // SAFETY: the place holds a key, which nobody uses again.
    unsafe { place.assume_init_drop() };
    let left = memory(&place);
    let is_part = |bytes: &&[u8]| KEY.as_chunks::<4>().0.iter().any(|part| part == *bytes);
    assert_eq!(left.windows(4).filter(is_part).count(), 0, "{left:02x?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn its_debug_output_shows_nothing_of_it() {
    assert_eq!(format!("{:?}", Key::new(&KEY)), "Key { .. }");
}

fn memory(place: &MaybeUninit<Key>) -> Vec<u8> {
    let start = place.as_ptr().cast::<u8>();
    // SAFETY: the place has that many bytes. A volatile read returns the memory as it is, padding too.
    let byte = |at| unsafe { start.add(at).read_volatile() };
    (0..size_of::<Key>()).map(byte).collect()
}
