//! Queries over TCP: each with its length in front (RFC 7766).

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    lookups::{Inner, LONGEST_QUERY},
    message::Over,
};
use convoy_network::{Listener, Stream, counters::Refusal, dial::reason};

/// Queries of one connection that are looked up at once; further ones wait unread.
const PIPELINED: usize = 16;
/// A connection ends after this time without a whole query; its client connects again.
const IDLE: Duration = Duration::from_secs(10);
/// Time limit for a client to make room for an answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a call of accept(2) that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The bytes in front of a message that tell its length.
const PREFIX: usize = 2;

pub(super) async fn serve(
    inner: Arc<Inner>,
    listener: Listener,
    peer_of: impl Fn(IpAddr) -> Option<u32>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((mut stream, client)) => {
                let peer = peer_of(client.ip()).ok_or(Refusal::Denied);
                let share = peer.and_then(|peer| Ok((peer, inner.connections.take(peer)?)));
                match share {
                    Ok((peer, share)) => {
                        let conversation = converse(Arc::clone(&inner), stream, peer);
                        connections.spawn(async move {
                            // That it failed concerns the client alone.
                            let _ = conversation.await;
                            drop(share);
                        });
                    }
                    Err(refusal) => {
                        inner.counters.refuse(refusal);
                        stream.close_by_reset();
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                inner.counters.refuse(reason(&error));
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers queries as they are looked up, not in their order.
async fn converse(inner: Arc<Inner>, mut stream: Stream, peer: u32) -> io::Result<()> {
    let mut input = Input::default();
    let mut lookups = JoinSet::new();
    let mut idle_at = Instant::now() + IDLE;
    let mut has_ended = false;
    loop {
        while lookups.len() < PIPELINED {
            let Some(query) = input
                .take()
                .inspect_err(|_| inner.counters.refuse(Refusal::Malformed))?
            else {
                break;
            };
            match inner.admit(&query, peer, Over::Tcp) {
                Ok(admitted) => drop(lookups.spawn(admitted.answer())),
                Err(Some(answer)) => inner.write(&mut stream, &answer).await?,
                Err(None) => return Ok(()),
            }
            idle_at = Instant::now() + IDLE;
        }
        if has_ended && lookups.is_empty() {
            return Ok(());
        }
        tokio::select! {
            Some(answer) = lookups.join_next() => {
                inner.write(&mut stream, &answer?).await?;
                idle_at = Instant::now() + IDLE;
            }
            read = input.read(&mut stream), if !has_ended && lookups.len() < PIPELINED => {
                has_ended = read? == 0;
            }
            () = sleep_until(idle_at), if lookups.is_empty() => return Ok(()),
        }
    }
}

impl Inner {
    async fn write(&self, stream: &mut Stream, answer: &[u8]) -> io::Result<()> {
        let length = (answer.len() as u16).to_be_bytes();
        // In one segment (RFC 7766, section 8).
        let message = [&length, answer].concat();
        timeout(WRITE_PATIENCE, stream.write_all(&message)).await??;
        self.counters.moved.count_inbound(answer.len());
        Ok(())
    }
}

/// Bytes that were read and are not yet a whole query.
struct Input {
    buffer: Box<[u8]>,
    filled: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            buffer: vec![0; PREFIX + LONGEST_QUERY].into(),
            filled: 0,
        }
    }
}

impl Input {
    /// Reads more; there is room, as long as all whole queries were taken. May be cancelled.
    async fn read(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let length = stream.read(&mut self.buffer[self.filled..]).await?;
        self.filled += length;
        Ok(length)
    }

    /// A whole query, if there is one.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let filled = &self.buffer[..self.filled];
        let Some((prefix, rest)) = filled.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*prefix));
        if length > LONGEST_QUERY {
            return Err(ErrorKind::InvalidData.into());
        }
        let Some(query) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.buffer.copy_within(PREFIX + length..self.filled, 0);
        self.filled -= PREFIX + length;
        Ok(Some(query))
    }
}
