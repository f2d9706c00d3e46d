//! Fuzz targets: tests that take their decisions from the bytes of an input.
//!
//! `cargo test` feeds each target its committed inputs, then a fixed number of seeded inputs that are the
//! same in every run. `make fuzz` builds the same test with libFuzzer, which searches for inputs that
//! reach new code.

use std::{
    fmt::Display,
    fs,
    panic::RefUnwindSafe,
    path::{Path, PathBuf},
};

pub use arbitrary::{self, Result, Unstructured};

/// The body of a test: runs `target` on every input.
///
/// `name` names the folders of its committed inputs, `rust/fuzz/corpora/NAME` and
/// `rust/fuzz/crashes/NAME`. There are `runs` seeded inputs of at most `max_len` bytes. An error of
/// `target` means that it has used up its input.
pub fn run(
    name: &str,
    runs: u64,
    max_len: usize,
    target: impl Fn(&mut Unstructured<'_>) -> Result<()> + RefUnwindSafe,
) {
    let one = |bytes: &[u8]| {
        let _ = target(&mut Unstructured::new(bytes));
    };
    #[cfg(fuzzing)]
    bolero::check!(name = name)
        .with_max_len(max_len)
        .for_each(|bytes: &[u8]| one(bytes));
    if cfg!(fuzzing) {
        return;
    }
    for path in committed(name) {
        let _shown = OnPanic(path.display());
        one(&fs::read(&path).expect("a committed input is readable"));
    }
    for seed in 0..runs {
        let _shown = OnPanic(format_args!("seed {seed}"));
        one(&seeded(seed, max_len));
    }
}

/// The files of this target, in the same order on every machine.
fn committed(name: &str) -> Vec<PathBuf> {
    let folders = ["crashes", "corpora"];
    let folders = folders.map(|folder| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(folder)
            .join(name)
    });
    let entries = folders.iter().flat_map(fs::read_dir).flatten();
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Names the input on which a test fails.
struct OnPanic<T: Display>(T);

impl<T: Display> Drop for OnPanic<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {}", self.0);
        }
    }
}

/// Up to `max_len` bytes from splitmix64, for which any seed is equally good.
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
    fn committed_inputs_are_found_those_that_failed_once_too() {
        let found = |part| {
            committed("reads")
                .iter()
                .any(|path| path.iter().any(|it| it == part))
        };
        assert!(found("corpora") && found("crashes"));
    }

    #[test]
    fn a_plain_test_runs_every_seeded_input_once() {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        run("none", 100, 8, |input| {
            RUNS.fetch_add(1, Relaxed);
            assert!(input.len() <= 8);
            Ok(())
        });
        assert_eq!(RUNS.load(Relaxed), 100);
    }
}
