//! The text of `perf script -F +pid`, read strictly: what is no sample is an error with its line.
//!
//! ```text
//! # comments, at the beginning only
//! tunnel 1234/1236 [001] 12402.012311:     100000 cpu-clock:
//!         ffffffff8172f2cc ep_item_poll.isra.0+0x3c ([kernel.kallsyms])
//!                   2fb73f convoy_tunnel::start::run+0x5f (/usr/local/bin/convoy)
//!
//! ```
//!
//! Firefox Profiler passes over what it does not understand; half a profile then looks like a whole one.

use std::io::BufRead;

use crate::TextError;

/// How much of a wrong line is shown.
const SHOWN: usize = 60;

/// What ran when the processor was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The thread's name, which tells its stage.
    pub thread: String,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What was counted, without modifiers and the processor's kind of core: `cycles`, `cpu-clock`.
    pub event: String,
    /// The function that ran first, then its callers.
    pub frames: Vec<Frame>,
}

/// One function of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// As `perf` names it, without the offset; `[unknown]` where it cannot.
    pub function: String,
    /// The file that it is in, or a name in brackets for the kernel.
    pub module: String,
}

/// The samples of a text, one after the other.
#[derive(Debug)]
pub struct Samples<R> {
    text: R,
    /// The line last read, counted from 1.
    line: usize,
    buffer: Vec<u8>,
    event: Option<String>,
    is_over: bool,
}

impl<R: BufRead> Samples<R> {
    /// The samples of `text`.
    pub fn new(text: R) -> Self {
        Self {
            text,
            line: 0,
            buffer: Vec::new(),
            event: None,
            is_over: false,
        }
    }

    fn sample(&mut self) -> Result<Option<Sample>, TextError> {
        let mut sample = loop {
            if !self.next_line()? {
                return match self.event {
                    Some(_) => Ok(None),
                    None => Err(TextError::Empty { line: self.line }),
                };
            }
            let is_comment = self.event.is_none() && self.buffer.starts_with(b"#");
            if !is_comment && !self.text_line()?.trim().is_empty() {
                break self.head()?;
            }
        };
        loop {
            if !self.next_line()? {
                return Err(TextError::Truncated { line: self.line });
            }
            if self.text_line()?.trim().is_empty() {
                return Ok(Some(sample));
            }
            sample.frames.push(self.frame()?);
        }
    }

    /// Reads one line without its end; false at the end of the text.
    fn next_line(&mut self) -> Result<bool, TextError> {
        self.buffer.clear();
        let line = self.line + 1;
        let read = self.text.read_until(b'\n', &mut self.buffer);
        if read.map_err(|source| TextError::Unreadable { line, source })? == 0 {
            return Ok(false);
        }
        self.line = line;
        match self.buffer.pop() {
            Some(b'\n') => Ok(true),
            _ => Err(TextError::Truncated { line }),
        }
    }

    fn text_line(&self) -> Result<&str, TextError> {
        str::from_utf8(&self.buffer).map_err(|_| self.wrong("no text in UTF-8"))
    }

    fn head(&mut self) -> Result<Sample, TextError> {
        let line = self.text_line()?;
        let sample = match head(line) {
            Some(sample) => sample,
            None if is_head_without_process(line) => {
                return Err(self.wrong("no process (fix: `perf script -F +pid`)"));
            }
            None => return Err(self.wrong("this is no part of a sample")),
        };
        match &self.event {
            Some(event) if *event != sample.event => {
                return Err(self.wrong("a second event (fix: record one, `perf record -e cycles`)"));
            }
            Some(_) => {}
            None => self.event = Some(sample.event.clone()),
        }
        Ok(sample)
    }

    fn frame(&self) -> Result<Frame, TextError> {
        let line = self.text_line()?;
        frame(line).ok_or_else(|| self.wrong("this is no frame of a stack"))
    }

    fn wrong(&self, problem: &'static str) -> TextError {
        let text = String::from_utf8_lossy(&self.buffer);
        TextError::Line {
            line: self.line,
            problem,
            text: text.chars().take(SHOWN).collect(),
        }
    }
}

impl<R: BufRead> Iterator for Samples<R> {
    type Item = Result<Sample, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let sample = self.sample();
        self.is_over = !matches!(sample, Ok(Some(_)));
        sample.transpose()
    }
}

/// `cpu_core/cycles/P` and `cycles:u` are both `cycles`.
pub(crate) fn plain_event(event: &str) -> &str {
    let event = match event.split_once('/') {
        Some((_, rest)) => rest.split('/').next().unwrap_or(rest),
        None => event,
    };
    event.split(':').next().unwrap_or(event)
}

/// The thread's name may hold anything; what follows it does not.
fn head(line: &str) -> Option<Sample> {
    let (before, after) = split_at_time(line)?;
    let (name, ids) = before.rsplit_once(' ')?;
    let (pid, tid) = ids.split_once('/')?;
    Some(Sample {
        thread: name.trim().to_owned(),
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        event: event(after)?,
        frames: Vec::new(),
    })
}

fn is_head_without_process(line: &str) -> bool {
    let thread = split_at_time(line).and_then(|(before, _)| before.rsplit(' ').next());
    thread.is_some_and(|tid| tid.parse::<u32>().is_ok())
}

/// What is before the processor and the time, and what is after them.
fn split_at_time(line: &str) -> Option<(&str, &str)> {
    let is_time = |word: &&str| {
        let digits = word.strip_suffix(':').unwrap_or_default();
        digits.parse::<f64>().is_ok_and(f64::is_finite) && digits.contains('.')
    };
    let time = line.split(' ').find(is_time)?;
    let (before, after) = line.split_once(&format!(" {time}"))?;
    let before = before.trim_end();
    let is_processor = |word: &str| word.starts_with('[') && word.ends_with(']');
    match before.rsplit_once(' ') {
        Some((rest, processor)) if is_processor(processor) => Some((rest.trim_end(), after)),
        _ => Some((before, after)),
    }
}

/// The event's name, behind the period that it stands for.
fn event(after_time: &str) -> Option<String> {
    let mut words = after_time.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let name = match second {
        Some(name) if first.parse::<u64>().is_ok() => name,
        None => first,
        Some(_) => return None,
    };
    let is_alone = words.next().is_none() && name.ends_with(':');
    is_alone.then(|| plain_event(name).to_owned())
}

fn frame(line: &str) -> Option<Frame> {
    let is_indented = line.starts_with(['\t', ' ']);
    let (address, rest) = line.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    let rest = rest.strip_suffix(')')?;
    // A program that was replaced while it ran.
    let rest = rest.strip_suffix(" (deleted)").unwrap_or(rest);
    let (function, module) = rest.rsplit_once(" (")?;
    let function = match function.rsplit_once("+0x") {
        Some((name, offset)) if u64::from_str_radix(offset, 16).is_ok() => name,
        _ => function,
    };
    is_indented.then(|| Frame {
        function: function.trim().to_owned(),
        module: module.to_owned(),
    })
}

#[cfg(test)]
mod tests;
