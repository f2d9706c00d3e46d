//! Remembers the reset of a socket, which the kernel tells once.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// Remembers that a writer has heard of a reset: whoever reads then would find an ordinary end.
#[derive(Debug, Default)]
pub(super) struct Resets(AtomicBool);

impl Resets {
    /// Takes note of what became of a write.
    pub(super) fn note<T>(&self, written: io::Result<T>) -> io::Result<T> {
        written.inspect_err(|error| {
            let is_of_connection = !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    // The other end had sent its end before, which is to be read as such.
                    | io::ErrorKind::BrokenPipe
            );
            if is_of_connection {
                self.0.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Turns an end that is none into the error.
    pub(super) fn tell(&self, read: usize) -> io::Result<usize> {
        match read == 0 && self.0.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(read),
        }
    }
}
