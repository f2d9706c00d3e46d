//! Standard output for the log. A reader that stalls never blocks the daemon.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::panics::ending;

/// Writes each line whole, or drops it if writing would block. Only a panic's line may block.
#[derive(Debug)]
pub(super) struct NeverBlocking;

impl Write for NeverBlocking {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Locked from the check to the write, so that no other thread fills the pipe in between.
        let mut output = io::stdout().lock();
        if ending::is_ending_elsewhere() {
            return Ok(line.len());
        }
        if ending::is_ending() || has_room(&output) {
            output.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Stdout flushes at the end of each line.
        Ok(())
    }
}

/// A pipe is writable while it has room for 4,096 bytes (pipe(7)), which is more than a line.
fn has_room(output: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    let is_known = poll(&mut fds, PollTimeout::ZERO).is_ok();
    // If poll fails, block rather than lose the line.
    !is_known || fds[0].any().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_full_pipe_has_no_room_until_it_is_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut written = 0;
        while has_room(&writer) {
            writer.write_all(&[b'x'; 1_024]).unwrap();
            written += 1_024;
        }
        reader.read_exact(&mut vec![0; written]).unwrap();
        assert!(has_room(&writer));
        drop(reader);
        assert!(
            has_room(&writer),
            "a closed pipe counts as writable: the write fails at once"
        );
    }
}
