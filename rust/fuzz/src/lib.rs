//! Fuzz targets: tests that read what they do from bytes.
//!
//! `cargo test` runs each with the files of its corpus, then with a fixed number of inputs from a
//! fixed seed: the same ones every time. `make fuzz` builds the same test with libFuzzer inside,
//! which looks for inputs that reach new code and adds them to the corpus.

use std::{panic::RefUnwindSafe, time::Duration};

pub use arbitrary::{self, Result, Unstructured};
#[doc(hidden)]
pub use bolero;
use bolero::{ByteSliceGenerator, DefaultEngine, TestTarget};

/// Makes the body of a test: `fuzz!(runs, max_len, target)`.
///
/// `runs` is how many seeded inputs a plain test runs, `max_len` how many bytes they have at most,
/// and `target` takes [`Unstructured`]; an error of it means that the input was used up.
///
/// A macro because the test's name and file say where its corpus is:
/// `__fuzz__/NAME_OF_THE_TEST/corpus` beside the file, where a name loses its `fuzz_` in front.
#[macro_export]
macro_rules! fuzz {
    ($runs:expr, $max_len:expr, $target:expr) => {
        $crate::run($crate::bolero::check!(), $runs, $max_len, $target)
    };
}

/// What `check!()` makes.
pub type Check = TestTarget<ByteSliceGenerator, DefaultEngine, bolero::BorrowedInput>;

/// What [`fuzz!`] calls.
pub fn run(
    check: Check,
    runs: u64,
    max_len: usize,
    target: impl Fn(&mut Unstructured<'_>) -> Result<()> + RefUnwindSafe,
) {
    let one = |bytes: &[u8]| {
        let _ = target(&mut Unstructured::new(bytes));
    };
    // Nothing at random here: the corpus, and further down the same inputs every time.
    let check = check
        .with_iterations(0)
        .with_test_time(Duration::MAX)
        .with_max_len(max_len);
    check.for_each(|bytes: &[u8]| one(bytes));
    if cfg!(fuzzing) {
        return;
    }
    for seed in 0..runs {
        let _told = TellSeed(seed);
        one(&seeded(seed, max_len));
    }
}

/// Tells which seeded input a failing test had.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with the seeded input {}", self.0);
        }
    }
}

/// Up to `max_len` bytes: splitmix64, of which every seed is as good as any.
fn seeded(seed: u64, max_len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let len = next() as usize % (max_len + 1);
    let words = std::iter::repeat_with(next).flat_map(u64::to_le_bytes);
    words.take(len).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn seeded_inputs_are_the_same_every_time_and_differ_from_each_other() {
        assert_eq!(seeded(7, 100), seeded(7, 100));
        assert_ne!(seeded(7, 100), seeded(8, 100));
        assert!((0..1000).all(|seed| seeded(seed, 10).len() <= 10));
        assert!((0..1000).any(|seed| seeded(seed, 10).len() == 10));
    }

    #[test]
    fn a_plain_test_runs_every_seeded_input_once() {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        fuzz!(100, 8, |input: &mut Unstructured<'_>| {
            RUNS.fetch_add(1, Relaxed);
            assert!(input.len() <= 8);
            Ok(())
        });
        assert_eq!(RUNS.load(Relaxed), 100);
    }
}
