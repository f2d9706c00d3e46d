//! The samples, each stack once with its count.

use std::{collections::BTreeMap, fs::File, io::BufRead, io::BufReader, path::Path};

use crate::{ProfileError, Sample, Samples, TextError};

/// What `perf` calls a function whose name or whose caller it cannot find.
const UNKNOWN: &str = "[unknown]";

/// How often each stack was seen.
///
/// A stack is the thread's name and its functions from the outermost on, with semicolons between
/// them: what flame graphs are drawn from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    counts: BTreeMap<String, u64>,
    event: String,
}

impl Stacks {
    /// Reads the text of `perf script` in `path`.
    ///
    /// # Errors
    ///
    /// When there is no such file, or something else in it; with the line.
    pub fn of_file(path: &Path) -> Result<Self, ProfileError> {
        let file = File::open(path).map_err(ProfileError::file(path))?;
        Self::of(BufReader::new(file)).map_err(|source| {
            let path = path.to_owned();
            ProfileError::Text { path, source }
        })
    }

    /// Reads the text of `perf script`.
    ///
    /// # Errors
    ///
    /// When there is something else in it; with the line.
    pub fn of(text: impl BufRead) -> Result<Self, TextError> {
        let mut stacks = Self::default();
        for sample in Samples::new(text) {
            let sample = sample?;
            *stacks.counts.entry(folded(&sample)).or_default() += 1;
            stacks.event = sample.event;
        }
        Ok(stacks)
    }

    /// Samples in all.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// What was counted between two samples.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// Every stack with its count: the thread first, then the functions from the outermost on.
    pub fn iter(&self) -> impl Iterator<Item = (impl DoubleEndedIterator<Item = &str>, u64)> {
        let counts = self.counts.iter();
        counts.map(|(stack, &count)| (stack.split(';'), count))
    }

    /// One line a stack, as programs that draw flame graphs take them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.counts
            .iter()
            .map(|(stack, count)| format!("{stack} {count}"))
    }
}

fn folded(sample: &Sample) -> String {
    let functions = sample
        .frames
        .iter()
        .rev()
        .map(|frame| frame.function.as_str());
    let names = std::iter::once(sample.thread.as_str()).chain(functions);
    let mut names: Vec<_> = names.map(|name| name.replace(';', ",")).collect();
    // Where callers cannot be found there are many, of which none says anything.
    names.dedup_by(|next, last| next == UNKNOWN && last == UNKNOWN);
    names.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_counted_from_the_outermost_function_on() {
        let sample =
            "tunnel 1/2 1.5: 100 cycles: \n\t1 inner+0x1 (a)\n\t2 <[u8; 4]>::outer (a)\n\n";
        let other = "tunnel 1/2 1.5: 100 cycles: \n\n";
        let text = [sample, other, sample].concat();
        let stacks = Stacks::of(text.as_bytes()).unwrap();
        let lines: Vec<_> = stacks.lines().collect();
        assert_eq!(lines, ["tunnel 1", "tunnel;<[u8, 4]>::outer;inner 2"]);
        assert_eq!((stacks.total(), stacks.event()), (3, "cycles"));
    }

    #[test]
    fn functions_without_a_name_are_one() {
        let frames = "\t1 seal (a)\n\t2 [unknown] (a)\n\t3 [unknown] ([unknown])\n";
        let text = format!("tunnel 1/2 1.5: 100 cycles: \n{frames}\n");
        let stacks = Stacks::of(text.as_bytes()).unwrap();
        let lines: Vec<_> = stacks.lines().collect();
        assert_eq!(lines, ["tunnel;[unknown];seal 1"]);
    }

    #[test]
    fn a_file_that_is_none_is_named_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "tunnel 1/2 1.5: 100 cycles: \n").unwrap();
        let error = Stacks::of_file(file.path()).unwrap_err().to_string();
        assert!(error.starts_with(file.path().to_str().unwrap()), "{error}");
        assert!(
            error.contains(", line 1: the text ends in the middle"),
            "{error}"
        );
    }
}
