//! The last lines of a daemon's log, kept in memory: a file would stay behind after `kill -9`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read as _, pipe};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;

const LINES: usize = 20;
const LONGEST_LINE: u64 = 4_096;

/// What a process wrote last.
#[derive(Debug, Clone)]
pub(super) struct LogTail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl LogTail {
    /// Redirects both outputs of `command` here.
    pub(super) fn of(command: &mut Command) -> anyhow::Result<Self> {
        let (reader, writer) = pipe().context("make a pipe for the log")?;
        let errors: PipeWriter = writer.try_clone().context("make a pipe for the log")?;
        command.stdout(writer).stderr(errors);

        let tail = Self {
            lines: Arc::default(),
        };
        let kept = tail.clone();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || kept.read(reader))
            .context("start a thread for the log")?;
        Ok(tail)
    }

    /// The last lines, indented for a message.
    pub(super) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "    (it logged nothing; LOG_LEVEL=debug tells more)".to_owned();
        }
        let indented: Vec<_> = lines.iter().map(|line| format!("    {line}")).collect();
        indented.join("\n")
    }

    fn read(&self, reader: PipeReader) {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while let Ok(1..) = (&mut reader)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(text);
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut command = Command::new("seq");
        let tail = LogTail::of(command.arg("100")).unwrap();
        command.status().unwrap();
        drop(command);
        let mut text = tail.text();
        while !text.ends_with("100") {
            thread::yield_now();
            text = tail.text();
        }
        assert_eq!(text.lines().count(), LINES);
        assert!(text.starts_with("    81\n"), "{text}");
    }
}
