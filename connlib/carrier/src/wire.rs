//! A connected socket, with or without TLS.

use std::{
    io::{self, Read, Write},
    task::{Context, Poll},
};

use rustls::ClientConnection;

use crate::{
    error::Closed, inbound::Inbound, outbound::Outbound, records::Records, socket::Socket, tls::Tls,
};

/// Bytes read from the socket at once for TLS: some of the longest records.
const READ: usize = 64 << 10;
/// Bytes sealed at once, in records of 16 KiB: as many wait for the socket at most.
const SEALED_AT_ONCE: usize = 64 << 10;
/// Most reads of the socket for TLS in one call: records of few bytes hardly fill the buffer that would end it.
const MOST_READS: usize = 4;
/// Records opened in one call, after which no others are: one may hold a single byte, or change the keys, in 20 µs.
/// TLS opens all those in 4 KiB at once.
const MOST_RECORDS: usize = 128;
/// Both, and the records that TLS is opening.
pub(crate) const BUFFER_BYTES: usize = READ + SEALED_AT_ONCE + (64 << 10);

#[derive(Debug)]
pub(crate) struct Wire {
    socket: Socket,
    tls: Option<Session>,
}

#[derive(Debug)]
struct Session {
    name: String,
    connection: ClientConnection,
    /// Bytes of the socket, of which TLS has taken those before `start`.
    read: Box<[u8]>,
    start: usize,
    end: usize,
    /// The records among the bytes that TLS has taken.
    records: Records,
}

impl Wire {
    pub(crate) fn new(socket: Socket, tls: Option<Tls>) -> Result<Self, Closed> {
        let tls = tls.map(Session::begin).transpose()?;
        Ok(Self { socket, tls })
    }

    /// Returns whether frames pass.
    pub(crate) fn is_open(&self) -> bool {
        let connection = self.tls.as_ref().map(|tls| &tls.connection);
        connection.is_none_or(|it| !it.is_handshaking())
    }

    /// Reads until the socket or the room for frames is exhausted, or the share of one call.
    pub(crate) fn read(&mut self, inbound: &mut Inbound) -> Result<(), Closed> {
        let Some(tls) = &mut self.tls else {
            while !inbound.is_full() {
                match self.socket.read(inbound.room()) {
                    Ok(0) => return Err(Closed::ByServer),
                    Ok(count) => inbound.commit(count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Closed::broken(&error)),
                }
            }
            return Ok(());
        };
        tls.receive(&mut &self.socket, inbound)
    }

    /// Writes until the socket is full or nothing waits.
    pub(crate) fn write(&mut self, outbound: &mut Outbound) -> Result<(), Closed> {
        let Some(tls) = &mut self.tls else {
            while !outbound.waiting().is_empty() {
                match self.socket.write(outbound.waiting()) {
                    Ok(count) => outbound.advance(count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Closed::broken(&error)),
                }
            }
            return Ok(());
        };
        loop {
            if !tls.send(&mut &self.socket)? || outbound.waiting().is_empty() {
                return Ok(());
            }
            let waiting = outbound.waiting();
            let some = &waiting[..waiting.len().min(SEALED_AT_ONCE)];
            let sealed = tls.connection.writer().write(some);
            let sealed = sealed.map_err(|error| Closed::broken(&error))?;
            outbound.advance(sealed);
        }
    }

    /// Ready once bytes can be received or, if something waits for it, writable.
    pub(crate) fn poll_ready(
        &self,
        can_receive: bool,
        outbound: &Outbound,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let has_unread = self.tls.as_ref().is_some_and(Session::has_unread);
        if can_receive && has_unread {
            return Poll::Ready(());
        }
        let writable = self.has_waiting(outbound);
        self.socket.poll_ready(can_receive, writable, cx)
    }

    /// Returns whether anything waits for the socket.
    pub(crate) fn has_waiting(&self, outbound: &Outbound) -> bool {
        let tls = self.tls.as_ref();
        let has_records = tls.is_some_and(|it| it.connection.wants_write());
        has_records || !outbound.waiting().is_empty()
    }

    pub(crate) fn say_goodbye(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            let _ = tls.send(&mut &self.socket);
        }
    }
}

impl Session {
    fn begin(tls: Tls) -> Result<Self, Closed> {
        let name = tls.name();
        Ok(Self {
            name,
            connection: tls.connection()?,
            read: vec![0; READ].into(),
            start: 0,
            end: 0,
            records: Records::default(),
        })
    }

    /// Reads and opens records until the stream or the room for frames is exhausted, or the share of one call.
    fn receive(
        &mut self,
        stream: &mut (impl Read + Write),
        inbound: &mut Inbound,
    ) -> Result<(), Closed> {
        let (mut reads, mut records) = (0, 0);
        loop {
            self.take_plaintext(inbound)?;
            if inbound.is_full() || records >= MOST_RECORDS {
                return Ok(());
            }
            if !self.has_unread() {
                if reads == MOST_READS {
                    return Ok(());
                }
                reads += 1;
                match stream.read(&mut self.read) {
                    Ok(0) => return Err(self.end_of_stream()),
                    Ok(count) => (self.start, self.end) = (0, count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(Closed::broken(&error)),
                }
            }
            let opened = self.open_records();
            // Answers of a handshake, and the alert that says what is wrong.
            let sent = self.send(stream);
            records += opened?;
            sent?;
        }
    }

    fn take_plaintext(&mut self, inbound: &mut Inbound) -> Result<(), Closed> {
        while !inbound.is_full() {
            match self.connection.reader().read(inbound.room()) {
                Ok(0) => return Err(Closed::ByServer),
                Ok(count) => inbound.commit(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Closed::broken(&error)),
            }
        }
        Ok(())
    }

    /// Returns whether bytes of the socket wait for TLS.
    fn has_unread(&self) -> bool {
        self.start < self.end
    }

    /// Opens some of the records that have been read; returns how many have begun.
    fn open_records(&mut self) -> Result<usize, Closed> {
        let mut rest = &self.read[self.start..self.end];
        let taken = self.connection.read_tls(&mut rest);
        let taken = taken.map_err(|error| Closed::broken(&error))?;
        let begun = self.records.pass(&self.read[self.start..][..taken]);
        self.start += taken;
        let opened = self.connection.process_new_packets();
        opened.map_err(|error| Closed::tls(&self.name, &error))?;
        Ok(begun)
    }

    /// Sends sealed records; returns whether the stream has taken all of them.
    fn send(&mut self, stream: &mut impl Write) -> Result<bool, Closed> {
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Closed::broken(&error)),
            }
        }
        Ok(true)
    }

    fn end_of_stream(&self) -> Closed {
        match self.connection.is_handshaking() {
            true => {
                let why = "the server has closed the connection";
                Closed::Tls(self.name.clone(), why.to_owned())
            }
            false => Closed::ByServer,
        }
    }
}

#[cfg(test)]
mod tests;
