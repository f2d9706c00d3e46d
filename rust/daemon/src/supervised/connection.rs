//! One end of the connection between a tunnel and its supervisor: [`Message`]s as lines, and descriptors.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use nix::unistd::Pid;
use tokio::{io::Interest, net::UnixStream};
use zeroize::{Zeroize as _, Zeroizing};

use super::{descriptors, protocol::Message};

/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// A connection; dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Received and not yet returned: at most one message and [`CHUNK`].
    input: Vec<u8>,
    /// Bytes of `input` in which there is no line feed.
    searched: usize,
    /// Not yet taken by the kernel: at most one message's length.
    output: Vec<u8>,
}

/// Reason why a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The other end has closed it.
    #[error("it was closed")]
    Closed,
    /// See [`Message::MAX_BYTES`].
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// The other end takes no messages.
    #[error("messages are not read")]
    NotRead,
    /// A line is not a message.
    #[error("a message is invalid: {0}")]
    Invalid(#[from] serde_json::Error),
    /// The kernel failed it.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl Connection {
    /// Exchanges messages on this stream.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            searched: 0,
            output: Vec::new(),
        }
    }

    /// Returns the process at the other end, which connected or called listen(2); `None` if it cannot be seen from
    /// here.
    pub fn process(&self) -> Option<Pid> {
        let pid = self.stream.peer_cred().ok()?.pid()?;
        (pid > 0).then(|| Pid::from_raw(pid))
    }

    /// Whether messages wait for the other end to read.
    pub fn is_behind(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends the first message, with descriptors.
    pub(crate) async fn send_with<M: Message>(
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
    pub async fn receive_with<M: Message>(&mut self) -> Result<(M, Vec<OwnedFd>), Lost> {
        let mut chunk = [0; CHUNK];
        let receive = || descriptors::receive(&self.stream, &mut chunk);
        let received = self.stream.async_io(Interest::READABLE, receive).await?;
        let (length, descriptors) = received;
        self.input.extend_from_slice(&chunk[..length]);
        Ok((self.next().await?, descriptors))
    }

    /// Queues a message, and writes what the kernel takes at once. The rest goes with [`Connection::next`] or
    /// [`Connection::flush`].
    pub fn queue<M: Message>(&mut self, message: &M) -> Result<(), Lost> {
        let line = line_of(message)?;
        if self.output.len() + line.len() > M::MAX_BYTES {
            return Err(Lost::NotRead);
        }
        self.output.extend_from_slice(&line);
        self.write_some()
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
    pub async fn next<M: Message>(&mut self) -> Result<M, Lost> {
        loop {
            if let Some(message) = self.next_or_flushed().await? {
                return Ok(message);
            }
        }
    }

    /// As [`Connection::next`], but also returns, with `None`, once the kernel has taken what was queued.
    pub(crate) async fn next_or_flushed<M: Message>(&mut self) -> Result<Option<M>, Lost> {
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
                self.output.clear();
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
    fn received<M: Message>(&mut self) -> Result<Option<M>, Lost> {
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
            match self.stream.try_write(&self.output) {
                Ok(length) => remove_first(&mut self.output, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Connection {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

/// Removes bytes from the front and leaves no copy of them behind: a message may have a preshared key in it.
fn remove_first(buffer: &mut Vec<u8>, length: usize) {
    let left = buffer.len() - length;
    buffer.copy_within(length.., 0);
    buffer[left..].zeroize();
    buffer.truncate(left);
}

fn line_of<M: Message>(message: &M) -> Result<Vec<u8>, Lost> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    match line.len() <= M::MAX_BYTES {
        true => Ok(line),
        false => Err(Lost::TooLong(M::MAX_BYTES)),
    }
}

#[cfg(test)]
mod tests;
