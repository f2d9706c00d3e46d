//! Standard output of commands that print a text and end.

use std::io::{self, Write};

use anyhow::Context as _;

/// Prints a text. A reader that has seen enough, such as `head`, is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_to(io::stdout().lock(), text)
}

/// Does the same by a stream that leads to standard output.
pub fn print_to(mut output: impl Write, text: &str) -> anyhow::Result<()> {
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_reader_that_has_left_is_no_error_and_a_full_disk_is_one() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        print_to(writer, "a line\n").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = print_to(full, "a line\n").unwrap_err();
        assert_eq!(error.to_string(), "cannot write to standard output");
    }
}
