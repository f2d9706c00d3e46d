//! Answers the peers' DNS queries by the host's resolver (RFC 1035, RFC 7766).

mod exchange;
mod lookups;
mod message;
mod tcp;
mod upstream;

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    sync::Arc,
};

use tokio::task::JoinSet;
use tracing::debug;

use convoy_network::shares::Shares;
use convoy_network::{
    Datagrams, Listener,
    counters::{Counters, Refusal, Totals},
};
use lookups::{Inner, LONGEST_QUERY};
use upstream::Source;

pub use message::Over;
pub use upstream::Upstream;

/// Datagrams received before other tasks have their turn.
const BATCH: usize = 64;

/// A name server. Clones are the same one.
///
/// Records of every type are passed on. If a client asks for DNSSEC, the answer has the bytes of the host's resolver,
/// which alone says whether they are authentic; nothing is validated here. All is bounded: look-ups and connections by shares, queries by 4 KiB, what is remembered
/// by 1,024 answers.
#[derive(Clone, Debug)]
pub struct Dns(Arc<Inner>);

impl Dns {
    /// A name server whose look-ups take from `queries`, and its TCP connections from `connections`.
    ///
    /// # Errors
    /// If there can be no resolver.
    pub fn new(upstream: Upstream, queries: Shares, connections: Shares) -> io::Result<Self> {
        let source = Source::open(upstream).map_err(io::Error::other)?;
        Ok(Self(Arc::new(Inner {
            source,
            queries,
            connections,
            counters: Counters::default(),
        })))
    }

    /// The answer to a peer's query; `None` if there is to be none.
    pub async fn answer(&self, query: &[u8], peer: u32, over: Over) -> Option<Vec<u8>> {
        match self.0.admit(query, peer, over) {
            Ok(admitted) => Some(admitted.answer().await),
            Err(answer) => answer,
        }
    }

    /// Serves a UDP socket until it is dropped. `peer_of` tells whose an address is; nobody else gets an answer.
    pub async fn serve_udp(
        self,
        socket: Datagrams,
        peer_of: impl Fn(IpAddr) -> Option<u32> + Send + Sync,
    ) {
        let socket = Arc::new(socket);
        let mut buffer = vec![0; LONGEST_QUERY];
        let mut lookups = JoinSet::new();
        loop {
            tokio::select! {
                ready = socket.readable() => match ready {
                    Ok(()) => self.receive(&socket, &mut buffer, &peer_of, &mut lookups),
                    Err(error) => debug!("cannot receive: {error}"),
                },
                Some(_) = lookups.join_next() => {}
            }
            tokio::task::yield_now().await;
        }
    }

    /// Accepts connections until it is dropped, which closes them; see [`serve_udp`](Self::serve_udp).
    pub async fn serve_tcp(
        self,
        listener: Listener,
        peer_of: impl Fn(IpAddr) -> Option<u32> + Send + Sync,
    ) {
        tcp::serve(self.0, listener, peer_of).await;
    }

    /// Returns what it has carried: a look-up counts as a connection, and queries are what leads out. A look-up that
    /// failed is refused, too; one that found that there is nothing is not.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.0.counters.totals()
    }

    fn receive(
        &self,
        socket: &Arc<Datagrams>,
        buffer: &mut [u8],
        peer_of: impl Fn(IpAddr) -> Option<u32>,
        lookups: &mut JoinSet<()>,
    ) {
        for _ in 0..BATCH {
            let (length, client) = match socket.try_recv_from(buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An ICMP error about an answer.
                Err(_) => continue,
            };
            let Some(peer) = peer_of(client.ip()) else {
                self.0.counters.refuse(Refusal::Denied);
                continue;
            };
            match self.0.admit(&buffer[..length], peer, Over::Udp) {
                Ok(admitted) => {
                    let (inner, socket) = (Arc::clone(&self.0), Arc::clone(socket));
                    lookups.spawn(async move {
                        let answer = admitted.answer().await;
                        inner.send(&socket, &answer, client);
                    });
                }
                Err(Some(answer)) => self.0.send(socket, &answer, client),
                Err(None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
