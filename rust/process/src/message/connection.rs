//! One end of a connection over which messages go both ways at any time.

use std::{
    io, mem,
    os::fd::{BorrowedFd, OwnedFd},
};

use nix::unistd::Pid;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{io::Interest, net::UnixStream};
use zeroize::{Zeroize as _, Zeroizing};

use super::{CHUNK, Lost, Message, lacking, line_of};
use crate::descriptors;

/// A connection; dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Received and not yet returned: at most one message and [`CHUNK`].
    input: Vec<u8>,
    /// Bytes of `input` in which there is no line feed.
    searched: usize,
    /// Not yet taken by the kernel, at most one message's length, and before that what it has taken.
    output: Vec<u8>,
    /// Bytes of `output` that the kernel has taken.
    taken: usize,
}

impl Connection {
    /// Exchanges messages on this stream.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            searched: 0,
            output: Vec::new(),
            taken: 0,
        }
    }

    /// Returns the process at the other end, which connected or called listen(2); `None` if it cannot be seen from
    /// here.
    pub fn process(&self) -> Option<Pid> {
        let pid = self.stream.peer_cred().ok()?.pid()?;
        (pid > 0).then(|| Pid::from_raw(pid))
    }

    /// Returns the socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns whether messages wait for the other end to read.
    pub fn is_behind(&self) -> bool {
        self.taken < self.output.len()
    }

    /// Sends the first message, with descriptors.
    pub async fn send_with<M: Message + Serialize>(
        &mut self,
        message: &M,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Lost> {
        let line = line_of(message)?;
        let send = || descriptors::send(&self.stream, &line, descriptors);
        let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
        self.output.extend_from_slice(&line[sent..]);
        self.flush().await
    }

    /// Receives the first message, with its descriptors.
    pub async fn receive_with<M: Message + DeserializeOwned>(
        &mut self,
    ) -> Result<(M, Vec<OwnedFd>), Lost> {
        let mut chunk = [0; CHUNK];
        let receive = || descriptors::receive(&self.stream, &mut chunk);
        let (length, descriptors) = self.stream.async_io(Interest::READABLE, receive).await?;
        self.input.extend_from_slice(&chunk[..length]);
        Ok((self.next().await?, descriptors.ok_or_else(lacking)?))
    }

    /// Queues a message, and writes what the kernel takes at once. The rest goes with [`Connection::next`] or
    /// [`Connection::flush`].
    pub fn queue<M: Message + Serialize>(&mut self, message: &M) -> Result<(), Lost> {
        let line = line_of(message)?;
        remove_first(&mut self.output, mem::take(&mut self.taken));
        if self.output.len() + line.len() > M::MAX_BYTES {
            return Err(Lost::NotRead);
        }
        self.output.extend_from_slice(&line);
        self.write_some()
    }

    /// Queues a message, and waits until the kernel has taken it. Cancel-safe: the rest goes later.
    pub async fn send<M: Message + Serialize>(&mut self, message: &M) -> Result<(), Lost> {
        self.queue(message)?;
        self.flush().await
    }

    /// Waits until the kernel has taken all messages.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        while self.is_behind() {
            self.stream.writable().await?;
            self.write_some()?;
        }
        Ok(())
    }

    /// Waits for the next message, and writes meanwhile. Cancel-safe.
    pub async fn next<M: Message + DeserializeOwned>(&mut self) -> Result<M, Lost> {
        loop {
            if let Some(message) = self.next_or_flushed().await? {
                return Ok(message);
            }
        }
    }

    /// As [`Connection::next`], but also returns, with `None`, once the kernel has taken what was queued.
    pub async fn next_or_flushed<M: Message + DeserializeOwned>(
        &mut self,
    ) -> Result<Option<M>, Lost> {
        loop {
            if let Some(message) = self.received::<M>()? {
                return Ok(Some(message));
            }
            let was_behind = self.is_behind();
            let interest = match was_behind {
                true => Interest::READABLE | Interest::WRITABLE,
                false => Interest::READABLE,
            };
            let ready = self.stream.ready(interest).await?;
            if was_behind && ready.is_writable() && self.write_some().is_err() {
                // Closed, but what the other end sent before can still be read.
                self.taken = self.output.len();
            }
            if ready.is_readable() {
                self.read_some()?;
            }
            if was_behind && !self.is_behind() {
                return Ok(None);
            }
        }
    }

    /// Takes the oldest complete message.
    fn received<M: Message + DeserializeOwned>(&mut self) -> Result<Option<M>, Lost> {
        let unsearched = &self.input[self.searched..];
        let end = unsearched.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(self.input.len(), |end| self.searched + end + 1);
        if length > M::MAX_BYTES {
            return Err(Lost::TooLong(M::MAX_BYTES));
        }
        if end.is_none() {
            self.searched = length;
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.input[..length])?;
        remove_first(&mut self.input, length);
        self.input.shrink_to(CHUNK);
        self.searched = 0;
        Ok(Some(message))
    }

    fn read_some(&mut self) -> Result<(), Lost> {
        let mut chunk = Zeroizing::new([0; CHUNK]);
        match self.stream.try_read(&mut chunk[..]) {
            Ok(0) => Err(Lost::Closed),
            Ok(length) => {
                self.input.extend_from_slice(&chunk[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_some(&mut self) -> Result<(), Lost> {
        while self.is_behind() {
            match self.stream.try_write(&self.output[self.taken..]) {
                Ok(length) => self.taken += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if !self.is_behind() {
            remove_first(&mut self.output, mem::take(&mut self.taken));
            self.output.shrink_to(CHUNK);
        }
        Ok(())
    }
}

/// Removes bytes from the front and leaves no copy of them behind: a message may have a preshared key in it.
fn remove_first(buffer: &mut Vec<u8>, length: usize) {
    let left = buffer.len() - length;
    buffer.copy_within(length.., 0);
    buffer[left..].zeroize();
    buffer.truncate(left);
}

#[cfg(test)]
mod tests;
