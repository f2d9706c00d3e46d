//! TCP connections to name servers that fail at an answer of which the resolver would make too much.
//!
//! If an answer lacks the records that were asked for, the resolver copies its addresses once for each server that it
//! refers to: 64 KiB become a gigabyte.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{DnsTcpStream, RuntimeProvider};

/// Most records about authority of an answer, times its additional ones. The servers of the root are 13, with 26
/// addresses.
const MOST_PAIRS: u32 = 4_096;
/// Bytes in front of a message that tell its length (RFC 1035, section 4.2.2), and of these and its header together.
const PREFIX: usize = 2;
const HEADER: usize = PREFIX + 12;

/// Sockets that `P` makes, whose connections fail at such an answer.
#[derive(Clone)]
pub struct Bounded<P>(pub(super) P);

impl<P: RuntimeProvider> RuntimeProvider for Bounded<P> {
    type Handle = P::Handle;
    type Timer = P::Timer;
    type Udp = P::Udp;
    type Tcp = Connection<P::Tcp>;

    fn create_handle(&self) -> Self::Handle {
        self.0.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let connected = self.0.connect_tcp(server, local, patience);
        Box::pin(async {
            Ok(Connection {
                stream: connected.await?,
                answers: Answers::default(),
            })
        })
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        self.0.bind_udp(local, server)
    }
}

/// A connection to a name server.
pub struct Connection<S> {
    stream: S,
    answers: Answers,
}

impl<S: DnsTcpStream> DnsTcpStream for Connection<S> {
    type Time = S::Time;
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(match self.answers.are_usable(&buffer[..read]) {
            true => Ok(read),
            false => Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

/// The answers of a connection, one after the other.
#[derive(Default)]
struct Answers {
    /// The beginning of the current one, as far as it is known.
    header: [u8; HEADER],
    /// Bytes of the current one so far.
    at: usize,
}

impl Answers {
    /// Takes the next bytes of the connection; returns false if they belong to an answer that costs too much.
    fn are_usable(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let end = self.end().unwrap_or(PREFIX);
            let (taken, rest) = bytes.split_at(bytes.len().min(end - self.at));
            let missing = self.header.iter_mut().skip(self.at);
            missing.zip(taken).for_each(|(slot, byte)| *slot = *byte);
            (self.at, bytes) = (self.at + taken.len(), rest);
            if self.at >= HEADER && self.pairs() > MOST_PAIRS {
                return false;
            }
            if self.end() == Some(self.at) {
                *self = Self::default();
            }
        }
        true
    }

    /// The length of the current answer with its prefix, once that is known.
    fn end(&self) -> Option<usize> {
        let [high, low, ..] = self.header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        (self.at >= PREFIX).then_some(PREFIX + length)
    }

    fn pairs(&self) -> u32 {
        let [.., a, b, c, d] = self.header;
        let [authority, additional] = [[a, b], [c, d]].map(u16::from_be_bytes).map(u32::from);
        authority.saturating_mul(additional)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of this length, with these numbers of records.
    fn message(length: usize, authority: u16, additional: u16) -> Vec<u8> {
        let mut message = vec![0xff; length];
        let counts = [authority, additional].map(u16::to_be_bytes).concat();
        for (slot, byte) in message.iter_mut().skip(8).zip(counts) {
            *slot = byte;
        }
        [&(length as u16).to_be_bytes(), &message[..]].concat()
    }

    #[test]
    fn answers_are_told_apart_however_they_are_cut() {
        let usable = [
            message(65_535, 13, 26),
            message(0, 0, 0),
            message(5, 0, 0),
            message(12, 0, u16::MAX),
            message(600, 1, 4_096),
        ];
        let costly = message(12, 64, 65);
        let all = [usable.concat(), costly].concat();
        for size in [1, 2, 3, 13, 1_000, all.len()] {
            let mut answers = Answers::default();
            let taken = all.chunks(size).position(|it| !answers.are_usable(it));
            assert_eq!(taken, Some(all.len().div_ceil(size) - 1), "{size}");
        }
    }
}
