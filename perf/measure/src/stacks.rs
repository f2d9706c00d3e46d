//! The samples, each stack once with its count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::BufRead,
    io::BufReader,
    path::Path,
};

use crate::{ProfileError, Sample, Samples, TextError};

/// What `perf` calls a function whose name or whose caller it cannot find.
const UNKNOWN: &str = "[unknown]";

/// How often each stack was seen.
///
/// A stack is the thread's name and its functions from the outermost on, with semicolons between
/// them: what flame graphs are drawn from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// By process.
    counts: BTreeMap<String, BTreeMap<u32, u64>>,
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
            stacks.add(folded(&sample), sample.pid, 1);
            stacks.event = sample.event;
        }
        Ok(stacks)
    }

    /// Samples in all.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// What was counted between two samples.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// The processes that were seen running.
    pub fn processes(&self) -> BTreeSet<u32> {
        let processes = self.counts.values().flat_map(BTreeMap::keys);
        processes.copied().collect()
    }

    /// Those of one process.
    #[must_use]
    pub fn of_process(&self, pid: u32) -> Self {
        let mut stacks = Self {
            event: self.event.clone(),
            ..Self::default()
        };
        for (stack, by_process) in &self.counts {
            if let Some(&count) = by_process.get(&pid) {
                stacks.add(stack.clone(), pid, count);
            }
        }
        stacks
    }

    /// Every stack with its count: the thread first, then the functions from the outermost on.
    pub fn iter(&self) -> impl Iterator<Item = (impl DoubleEndedIterator<Item = &str>, u64)> {
        let counts = self.counts.iter();
        counts.map(|(stack, by_process)| (stack.split(';'), by_process.values().sum()))
    }

    /// One line a stack, as programs that draw flame graphs take them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.counts
            .iter()
            .map(|(stack, by_process)| format!("{stack} {}", by_process.values().sum::<u64>()))
    }

    fn add(&mut self, stack: String, pid: u32, count: u64) {
        *self
            .counts
            .entry(stack)
            .or_default()
            .entry(pid)
            .or_default() += count;
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
    fn the_stacks_of_processes_are_together_and_can_be_told_apart() {
        let sample = |pid: u32| format!("tunnel {pid}/9 1.5: 100 cycles: \n\t1 send (a)\n\n");
        let text = [7, 8, 7].map(sample).concat();
        let stacks = Stacks::of(text.as_bytes()).unwrap();
        assert_eq!(stacks.lines().collect::<Vec<_>>(), ["tunnel;send 3"]);
        assert_eq!(stacks.processes().into_iter().collect::<Vec<_>>(), [7, 8]);
        let counts = [7, 8, 9].map(|pid| stacks.of_process(pid).total());
        assert_eq!(counts, [2, 1, 0]);
        assert_eq!(stacks.of_process(7).event(), "cycles");
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
