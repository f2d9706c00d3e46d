//! Parses the samples in the output of `perf script -F +pid`: each distinct stack, with its count.
//!
//! ```text
//! # comments, at the beginning only
//! tunnel 1234/1236 [001] 12402.012311:     100000 cpu-clock:
//!         ffffffff8172f2cc ep_item_poll.isra.0+0x3c ([kernel.kallsyms])
//!                   2fb73f convoy_tunnel::start::run+0x5f (/usr/local/bin/convoy)
//!
//! ```
//!
//! A line of any other form is an error, so that an incomplete profile does not pass for a whole one.
//! Firefox Profiler and inferno's collapser would skip it. The collapser also skips samples without a
//! stack and those from a second kind of core, and it counts periods instead of samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Error, Result, bail};

/// `perf`'s name for a function whose name or caller it cannot find.
pub(super) const UNKNOWN: &str = "[unknown]";
const TRUNCATED: &str = "the text ends in the middle of a sample: it is truncated";
const EMPTY: &str = "the text ends without a sample: nothing ran while it was recorded";

/// Counts of stacks.
///
/// A stack is the thread's name and its functions from the outermost one on, separated by semicolons: the
/// input format of flame graphs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// By stack and process.
    counts: BTreeMap<(String, u32), u64>,
    event: String,
}

/// The process of a sample, and the names read so far: the thread, then its functions from the innermost on.
type Sample = (u32, Vec<String>);

impl Stacks {
    /// Reads the file `path`.
    ///
    /// # Errors
    ///
    /// If there is no such file or it has other contents; names the line.
    pub fn of_file(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::from);
        let stacks = file.and_then(|file| Self::of(BufReader::new(file)));
        stacks.with_context(|| path.display().to_string())
    }

    /// Reads the output of `perf script`.
    pub(super) fn of(mut text: impl BufRead) -> Result<Self> {
        let (mut stacks, mut sample) = (Self::default(), None);
        let (mut number, mut line) = (0, String::new());
        loop {
            line.clear();
            let read = text.read_line(&mut line);
            number += usize::from(!matches!(read, Ok(0)));
            let problem = match read {
                Err(error) => error.to_string(),
                Ok(0) if sample.is_none() && stacks.event.is_empty() => EMPTY.to_owned(),
                Ok(0) if sample.is_none() => return Ok(stacks),
                Ok(_) if !line.ends_with('\n') => TRUNCATED.to_owned(),
                Ok(_) => match stacks.accept(&line, &mut sample) {
                    Ok(()) => continue,
                    Err(problem) => format!("{problem}: {:?}", line.trim()),
                },
            };
            bail!("line {number}: {problem}");
        }
    }

    /// Total number of samples.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The event that triggered the samples.
    pub fn event(&self) -> &str {
        &self.event
    }

    /// The processes that ran.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.counts.keys().map(|(_, pid)| *pid).collect()
    }

    /// The samples of one process.
    #[must_use]
    pub fn of_process(&self, pid: u32) -> Self {
        let mut stacks = self.clone();
        stacks.counts.retain(|(_, of), _| *of == pid);
        stacks
    }

    /// Every stack with its count: the thread, then its functions from the outermost one on.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Vec<&str>, u64)> {
        self.counts.iter().map(|((stack, _), &count)| {
            let mut names = stack.split(';');
            (names.next().unwrap_or_default(), names.collect(), count)
        })
    }

    /// The share of the samples with each key; samples without a key are omitted.
    pub(super) fn shares<'a, K: Ord>(
        &'a self,
        key: impl Fn(&'a str, &[&'a str]) -> Option<K>,
    ) -> BTreeMap<K, f64> {
        let mut counts = BTreeMap::new();
        for (thread, functions, count) in self.iter() {
            if let Some(key) = key(thread, &functions) {
                *counts.entry(key).or_default() += count as f64;
            }
        }
        let total = self.total().max(1) as f64;
        counts.values_mut().for_each(|count| *count /= total);
        counts
    }

    /// One line per stack, the input format of flame graph programs.
    pub(super) fn text(&self) -> String {
        let lines = self.counts.iter();
        let lines = lines.map(|((stack, _), count)| format!("{stack} {count}\n"));
        lines.collect()
    }

    fn accept(&mut self, line: &str, sample: &mut Option<Sample>) -> Result<(), &'static str> {
        let is_end = line.trim().is_empty();
        let is_comment = self.event.is_empty() && line.starts_with('#');
        match sample {
            None if is_end || is_comment => {}
            None => {
                let begun = head(line);
                let (event, begun) = begun.ok_or("this is no sample of `perf script -F +pid`")?;
                if self.event.is_empty() {
                    self.event = event.to_owned();
                } else if self.event != event {
                    return Err("a second event (fix: record one, `perf record -e cycles`)");
                }
                *sample = Some(begun);
            }
            Some(_) if is_end => sample.take().into_iter().for_each(|whole| self.add(whole)),
            Some((_, names)) => names.push(frame(line).ok_or("this is no frame of a stack")?),
        }
        Ok(())
    }

    fn add(&mut self, (pid, mut names): Sample) {
        names[1..].reverse();
        // If callers cannot be found there are many such frames, all without a name.
        names.dedup_by(|next, last| next == UNKNOWN && last == UNKNOWN);
        *self.counts.entry((names.join(";"), pid)).or_default() += 1;
    }
}

/// `cpu_core/cycles/P` and `cycles:u` are both `cycles`.
pub(super) fn plain_event(event: &str) -> &str {
    let event = event.split('/').nth(1).unwrap_or(event);
    event.split(':').next().unwrap_or(event)
}

/// Parses from the end, because the thread's name comes first and may contain anything.
fn head(line: &str) -> Option<(&str, Sample)> {
    let (mut rest, event) = line.trim_end().strip_suffix(':')?.rsplit_once(' ')?;
    // The period, the time and the processor lie between.
    loop {
        let (before, word) = rest.rsplit_once(' ')?;
        rest = before.trim_end();
        let ids = word.split_once('/');
        if let Some((Ok(pid), Ok(_))) = ids.map(|(pid, tid)| (pid.parse(), tid.parse::<u32>())) {
            let thread = rest.trim().replace(';', ",");
            return Some((plain_event(event), (pid, vec![thread])));
        }
    }
}

/// The function's name without its address, offset and module.
fn frame(line: &str) -> Option<String> {
    let indented = line.strip_prefix(['\t', ' '])?;
    let (address, rest) = indented.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    let rest = rest.strip_suffix(')')?;
    // The program's file was replaced while it ran.
    let rest = rest.strip_suffix(" (deleted)").unwrap_or(rest);
    let (function, _module) = rest.rsplit_once(" (")?;
    let is_hex = |offset: &str| u64::from_str_radix(offset, 16).is_ok();
    let name = match function.rsplit_once("+0x") {
        Some((name, offset)) if is_hex(offset) => name,
        _ => function,
    };
    Some(name.trim().replace(';', ","))
}

#[cfg(test)]
impl Stacks {
    /// Samples of the event `cycles`: each with the process, the thread and its functions from the outermost one
    /// on, separated by semicolons.
    pub(super) fn of_samples(samples: &[(u32, &str)]) -> Self {
        let (event, mut counts) = ("cycles".to_owned(), BTreeMap::new());
        for &(pid, stack) in samples {
            *counts.entry((stack.to_owned(), pid)).or_default() += 1;
        }
        Self { counts, event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# captured on    : Sat Nov 21 15:07:19 2026
#
tun-writer 31269/31272 12402.007309:     100000 cpu-clock: \n\
\tffffffff8172f2cc ep_item_poll.isra.0+0x3c ([kernel.kallsyms])
\t          2cee7b <a::B as c::D<[u8; 4]>>::e (f)+0xdb (/usr/bin/convoy (deleted))
\t               0 [unknown] ([unknown])
\t               1 [unknown] (/usr/lib/libc.so.6)

my thread 5 7/8 [001] 12403.5:     cpu-clock:u: \n\n";

    fn fault(text: &[u8]) -> String {
        Stacks::of(text).unwrap_err().to_string()
    }

    #[test]
    fn threads_and_functions_are_counted_from_the_outermost_on_and_by_process() {
        let last = &TEXT[TEXT.find("my thread").unwrap()..];
        let stacks = Stacks::of([TEXT, last].concat().as_bytes()).unwrap();
        let first = "tun-writer;[unknown];<a::B as c::D<[u8, 4]>>::e (f);ep_item_poll.isra.0 1";
        assert_eq!(stacks.text(), format!("my thread 5 2\n{first}\n"));
        assert_eq!((stacks.total(), stacks.event()), (3, "cpu-clock"));
        assert_eq!(stacks.processes(), BTreeSet::from([7, 31_269]));
        assert_eq!([7, 8].map(|pid| stacks.of_process(pid).total()), [2, 0]);
    }

    #[test]
    fn a_text_that_is_cut_anywhere_is_an_error_unless_it_ends_between_two_samples() {
        let whole = TEXT.find("\n\n").unwrap() + 2;
        for end in (0..TEXT.len()).filter(|end| *end != whole) {
            let error = fault(&TEXT.as_bytes()[..end]);
            let expected = format!("line {}: the text ends", TEXT[..end].lines().count());
            assert!(error.starts_with(&expected), "{end}: {error}");
        }
        assert_eq!(Stacks::of(&TEXT.as_bytes()[..whole]).unwrap().total(), 1);
    }

    #[test]
    fn a_line_that_does_not_belong_is_named_wherever_it_is() {
        let lines: Vec<_> = TEXT.lines().collect();
        for place in 0..=lines.len() {
            let mut lines = lines.clone();
            lines.insert(place, "[ perf record: Woken up 3 times ]");
            let error = fault((lines.join("\n") + "\n").as_bytes());
            let expected = format!("line {}: this is no ", place + 1);
            assert!(error.starts_with(&expected), "{place}: {error}");
        }
        let without_pid = "tunnel 12 1.5: 100 cycles: \n\n";
        assert!(fault(without_pid.as_bytes()).contains("`perf script -F +pid`"));
        assert!(fault(&[TEXT.as_bytes(), b"\xff\xfe\n"].concat()).contains("valid UTF-8"));
    }

    #[test]
    fn a_second_event_is_an_error_and_another_kind_of_core_is_none() {
        let sample = |event| format!("tunnel 1/2 1.5: 100 {event}: \n\n");
        let hybrid = ["cpu_core/cycles/P", "cpu_atom/cycles/P", "cycles:u"].map(sample);
        let hybrid = hybrid.concat();
        assert_eq!(Stacks::of(hybrid.as_bytes()).unwrap().total(), 3);
        let error = fault((hybrid + &sample("cpu-clock")).as_bytes());
        assert!(error.starts_with("line 7: a second event"), "{error}");
    }
}
