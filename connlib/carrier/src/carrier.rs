//! The stream from its opening to its end.

use std::{
    future::poll_fn,
    net::SocketAddr,
    task::{Context, Poll},
};

use crate::{
    error::Closed,
    inbound::Inbound,
    opening::{Opening, Prepare},
    outbound::{Full, Outbound},
    socket::Socket,
    tls::Tls,
    wire::Wire,
};

/// A stream to one server. Dropping it closes the connection.
#[derive(Debug)]
pub struct Carrier {
    tls: Option<Tls>,
    state: State,
    inbound: Inbound,
    outbound: Outbound,
}

#[derive(Debug)]
enum State {
    /// The socket is being made and marked.
    Opening(Opening),
    Connecting(Socket),
    /// Connected; TLS may still be shaking hands.
    Connected(Box<Wire>),
    Closed(Closed),
}

/// Whole frames that a stream has left at its end, without those that TLS or the socket had taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Arrived, but not taken.
    pub inbound: usize,
    /// Not sent, or not to the end.
    pub outbound: usize,
}

/// How far a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<'a> {
    /// It connects, or shakes hands.
    Opening,
    /// Frames pass.
    Open,
    /// It has ended, for this reason.
    Closed(&'a Closed),
}

impl Carrier {
    /// Begins to connect to `server`, which must prove its name if `tls` is given. `prepare` is called with the socket
    /// on another thread before it connects, and may wait. Call it within the tokio runtime that waits for
    /// [`Self::ready`].
    #[must_use]
    pub fn open(server: SocketAddr, tls: Option<&Tls>, prepare: Option<Prepare>) -> Self {
        let state = match Opening::begin(server, prepare) {
            Ok(opening) => State::Opening(opening),
            Err(error) => State::Closed(Closed::Socket(error.to_string())),
        };
        Self {
            tls: tls.cloned(),
            state,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
        }
    }

    /// Returns how far the stream is. Frames may be left of one that has ended.
    #[must_use]
    pub fn phase(&self) -> Phase<'_> {
        match &self.state {
            State::Closed(why) => Phase::Closed(why),
            State::Connected(wire) if wire.is_open() => Phase::Open,
            _ => Phase::Opening,
        }
    }

    /// Goes on with whatever is possible now: connects, shakes hands, reads until the buffer is full. Returns whether
    /// there was anything to do.
    pub fn receive(&mut self) -> bool {
        let before = (self.inbound.len(), self.stage());
        self.advance_opening();
        if let State::Connected(wire) = &mut self.state
            && let Err(why) = wire.read(&mut self.inbound)
        {
            self.close(why);
        }
        if self.inbound.check().is_err() {
            self.close(Closed::NotTurn);
        }
        (self.inbound.len(), self.stage()) != before
    }

    /// Returns the whole frames that have arrived, oldest first, with their padding. [`Self::advance`] removes them.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.inbound.frames()
    }

    /// Returns whether a whole frame has arrived.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.inbound.has_frame()
    }

    /// Removes the oldest frame.
    pub fn advance(&mut self) {
        self.inbound.advance();
    }

    /// Adds a frame, and the padding that it lacks, to those that [`Self::flush`] sends.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or the stream is not open: the caller drops the frame and counts it.
    pub fn append(&mut self, frame: &[u8]) -> Result<(), Full> {
        match self.phase() {
            Phase::Open => self.outbound.append(frame),
            _ => Err(Full),
        }
    }

    /// The same for a control message, for which data leaves some room.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_control(&mut self, frame: &[u8]) -> Result<(), Full> {
        match self.phase() {
            Phase::Open => self.outbound.append_control(frame),
            _ => Err(Full),
        }
    }

    /// Sends what waits, handshakes included, as far as the socket takes it. Call it every tick.
    pub fn flush(&mut self) {
        if let State::Connected(wire) = &mut self.state
            && let Err(why) = wire.write(&mut self.outbound)
        {
            // What has arrived before counts, and may say why.
            self.receive();
            self.close(why);
        }
    }

    /// Waits until [`Self::receive`] or [`Self::flush`] has something to do; without `can_receive`, arriving bytes do
    /// not count. Waits forever once the stream has ended. Cancel-safe.
    pub async fn ready(&mut self, can_receive: bool) {
        poll_fn(|cx| self.poll_ready(can_receive, cx)).await;
    }

    /// As [`Self::ready`], to wait for several streams. Only the waker of the last call is woken.
    pub fn poll_ready(&mut self, can_receive: bool, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            State::Opening(opening) => opening.poll_ended(cx),
            State::Connecting(socket) => socket.poll_ready(false, true, cx),
            State::Connected(wire) => wire.poll_ready(can_receive, &self.outbound, cx),
            State::Closed(_) => Poll::Pending,
        }
    }

    /// Tells the server that this is the end, if it listens, and closes the stream. Frames that wait are sent as far as
    /// the socket takes them; returns those left.
    pub fn end(mut self) -> Left {
        self.flush();
        if let State::Connected(wire) = &mut self.state {
            wire.say_goodbye();
        }
        Left {
            inbound: self.frames().count(),
            outbound: self.outbound.count(),
        }
    }

    /// A number that differs from one step of the opening to the next.
    fn stage(&self) -> u8 {
        match &self.state {
            State::Opening(_) => 0,
            State::Connecting(_) => 1,
            State::Connected(wire) if !wire.is_open() => 2,
            State::Connected(_) => 3,
            State::Closed(_) => 4,
        }
    }

    /// Connects as far as possible without waiting.
    fn advance_opening(&mut self) {
        if let State::Opening(opening) = &mut self.state {
            match opening.poll() {
                Some(Ok(socket)) => self.state = State::Connecting(socket),
                Some(Err(why)) => self.close(why),
                None => {}
            }
        }
        if let State::Connecting(socket) = &self.state {
            match socket.is_connected() {
                Ok(false) => {}
                Ok(true) => self.connected(),
                Err(error) => self.close(Closed::connecting(&error)),
            }
        }
    }

    fn connected(&mut self) {
        let ended = State::Closed(Closed::ByServer);
        let State::Connecting(socket) = std::mem::replace(&mut self.state, ended) else {
            return;
        };
        self.state = match Wire::new(socket, self.tls.take()) {
            Ok(wire) => State::Connected(Box::new(wire)),
            Err(why) => State::Closed(why),
        };
    }

    fn close(&mut self, why: Closed) {
        // The first reason is the cause of others.
        if !matches!(self.state, State::Closed(_)) {
            self.state = State::Closed(why);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
