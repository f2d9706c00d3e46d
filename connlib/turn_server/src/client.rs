//! A client of a TURN server by a stream.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use rustls::ServerConnection;

use super::RelayIdentity;

pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) is_open: bool,
    tls: Option<ServerConnection>,
    received: Vec<u8>,
    waiting: Vec<u8>,
}

impl Client {
    pub(super) fn new(
        stream: TcpStream,
        address: SocketAddr,
        identity: Option<&RelayIdentity>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let tls = identity.map(|it| ServerConnection::new(it.config()));
        let mut tls = tls.transpose().map_err(io::Error::other)?;
        if let Some(tls) = &mut tls {
            tls.set_buffer_limit(None);
        }
        Ok(Self {
            stream,
            address,
            is_open: true,
            tls,
            received: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Takes what has arrived.
    pub(super) fn read(&mut self) {
        let outcome = match &mut self.tls {
            None => self.read_plain(),
            Some(_) => self.read_tls(),
        };
        let is_over = !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.is_open &= !is_over;
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
        let has_records = self.tls.as_ref().is_some_and(|it| it.wants_write());
        !self.waiting.is_empty() || has_records
    }

    /// Sends what waits, as far as the socket takes it.
    pub(super) fn write(&mut self) {
        if let Some(tls) = &mut self.tls {
            if !tls.is_handshaking() && tls.writer().write_all(&self.waiting).is_ok() {
                self.waiting.clear();
            }
            while tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    Err(_) => return self.is_open = false,
                }
            }
            return;
        }
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.is_open = false,
            }
        }
    }

    fn read_plain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        loop {
            match self.stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn read_tls(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        loop {
            let count = tls.read_tls(&mut self.stream)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            let mut buffer = [0; 65_536];
            loop {
                match tls.reader().read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if count == 0 {
                return Ok(());
            }
        }
    }
}
