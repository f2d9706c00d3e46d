//! Standard output for the log. A reader that stalls never blocks the daemon.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use rustix::io::ioctl_fionread;

use crate::panics::ending;

/// A pipe is writable while it has room for this many bytes (pipe(7)): one page.
const PAGE: usize = 4_096;

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
        if ending::is_ending() || has_room(&output, line.len()) {
            output.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Stdout flushes at the end of each line.
        Ok(())
    }
}

/// Returns whether a line of this length can be written without waiting.
fn has_room(output: &impl AsFd, length: usize) -> bool {
    let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    let is_known = poll(&mut fds, PollTimeout::ZERO).is_ok();
    // If poll fails, block rather than lose the line.
    let is_writable = !is_known || fds[0].any().unwrap_or(true);
    is_writable && (length <= PAGE || has_pages(output, length))
}

/// Returns whether a pipe has room for several pages; `true` for what is no pipe.
fn has_pages(output: &impl AsFd, length: usize) -> bool {
    let capacity = fcntl(output, FcntlArg::F_GETPIPE_SZ).map(usize::try_from);
    let unread = ioctl_fionread(output).map(usize::try_from);
    let (Ok(Ok(capacity)), Ok(Ok(unread))) = (capacity, unread) else {
        return true;
    };
    if unread == 0 {
        return length <= capacity;
    }
    // A write begins a page only if the last one lacks room for it, so two neighbors hold more than one page's bytes.
    // The rest is for the ends of what is unread, and of the line.
    let taken = unread.saturating_mul(2).saturating_add(4 * PAGE);
    taken.saturating_add(length) <= capacity
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_full_pipe_has_no_room_until_it_is_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut written = 0;
        while has_room(&writer, 1) {
            writer.write_all(&[b'x'; 1_024]).unwrap();
            written += 1_024;
        }
        reader.read_exact(&mut vec![0; written]).unwrap();
        assert!(has_room(&writer, 1));
        drop(reader);
        assert!(
            has_room(&writer, 1),
            "a closed pipe counts as writable: the write fails at once"
        );
    }

    #[test]
    fn a_line_longer_than_a_page_is_written_only_where_all_of_it_has_room() {
        let long = [b'x'; 10_000];
        let lengths = [1, 100, 2_049, 4_095, 4_096, 5_000];
        let before = |length| (0..17).map(move |count| (length, count));
        for (length, count) in lengths.into_iter().flat_map(before) {
            let (_reader, mut writer) = io::pipe().unwrap();
            // If the check were wrong, a write would fail instead of waiting forever.
            fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            for _ in 0..count {
                let _ = writer.write(&vec![b'x'; length]);
            }
            let case = format!("after {count} lines of {length} bytes");
            if has_room(&writer, long.len()) {
                assert_eq!(writer.write(&long).unwrap(), long.len(), "{case}");
            } else {
                assert!(count * length > 16_000, "{case}");
            }
        }
    }
}
