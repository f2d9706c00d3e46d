//! The standard output, for a log whose reader may stand still: the daemon does not wait for it.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::panics;

/// Writes each line whole, or loses it where it would have to wait; only that of a panic may.
#[derive(Debug)]
pub(super) struct Unhurried;

impl Write for Unhurried {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Held from the question to the write, so that no other thread fills the room meanwhile.
        let mut output = io::stdout().lock();
        if panics::is_ending() || has_room(&output) {
            output.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // The standard output flushes itself at the end of a line.
        Ok(())
    }
}

/// A pipe is writable while it has room for 4,096 bytes (pipe(7)), which is more than a line.
fn has_room(output: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    let is_known = poll(&mut fds, PollTimeout::ZERO).is_ok();
    // Where it cannot be known, waiting is better than saying nothing.
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
        assert!(has_room(&writer), "it is closed: writing tells so at once");
    }
}
