//! A client of a TURN server by a stream.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustls::{ServerConnection, StreamOwned};

use super::RelayIdentity;

pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) is_open: bool,
    stream: Stream,
    received: Vec<u8>,
    waiting: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Client {
    pub(super) fn new(
        stream: TcpStream,
        address: SocketAddr,
        identity: Option<&RelayIdentity>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let stream = match identity {
            None => Stream::Plain(stream),
            Some(identity) => {
                let tls = ServerConnection::new(identity.config());
                let mut tls = tls.map_err(io::Error::other)?;
                tls.set_buffer_limit(None);
                Stream::Tls(Box::new(StreamOwned::new(tls, stream)))
            }
        };
        Ok(Self {
            address,
            is_open: true,
            stream,
            received: Vec::new(),
            waiting: Vec::new(),
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    /// Takes what has arrived.
    pub(super) fn read(&mut self) {
        let stream: &mut dyn Read = match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => tls,
        };
        let mut buffer = [0; 65_536];
        self.is_open &= loop {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Ok(0) | Err(_) => break false,
            }
        };
    }

    /// Takes the oldest frame, without its padding.
    pub(super) fn next_frame(&mut self) -> Option<Vec<u8>> {
        let &[first, _, l0, l1] = self.received.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let whole = match first {
            0x40..=0x4F => 4 + len,
            _ => 20 + len,
        };
        let padded = whole.next_multiple_of(4);
        if self.received.len() < padded {
            return None;
        }
        let mut frame: Vec<_> = self.received.drain(..padded).collect();
        frame.truncate(whole);
        Some(frame)
    }

    pub(super) fn send(&mut self, frame: &[u8]) {
        self.waiting.extend_from_slice(frame);
        let padded = self.waiting.len() + frame.len().next_multiple_of(4) - frame.len();
        self.waiting.resize(padded, 0);
    }

    pub(super) fn has_waiting(&self) -> bool {
        let has_records = matches!(&self.stream, Stream::Tls(tls) if tls.conn.wants_write());
        !self.waiting.is_empty() || has_records
    }

    /// Sends what waits, as far as the socket takes it.
    pub(super) fn write(&mut self) {
        let stream: &mut dyn Write = match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => tls,
        };
        let mut outcome = Ok(0);
        while !self.waiting.is_empty() && outcome.is_ok() {
            outcome = stream.write(&self.waiting);
            self.waiting.drain(..*outcome.as_ref().unwrap_or(&0));
        }
        let outcome = outcome.and_then(|_| stream.flush());
        let has_failed = |error: io::Error| error.kind() != io::ErrorKind::WouldBlock;
        self.is_open &= !outcome.is_err_and(has_failed);
    }
}
