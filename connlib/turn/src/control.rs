//! Wraps the library's client: one allocation from its first request to its end.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use turn_client_proto::{
    api::{DelayedMessageOrChannelSend, TurnConfig, TurnEvent, TurnPollRet, TurnRecvRet},
    prelude::{DelayedTransmitBuild, TurnClientApi},
    stun::{
        Instant,
        agent::Transmit,
        types::{attribute::ErrorCode, message::Message},
    },
    tcp::TurnClientTcp,
    types::{AddressFamily, TransportType},
    udp::TurnClientUdp,
};

use crate::{
    channel::ChannelNumber,
    credentials::Credentials,
    error::Failure,
    server::{Server, Transport},
};

/// Retransmission of requests over UDP (RFC 8489 §6.2.1), given up after about eight seconds.
const FIRST_RETRANSMIT: Duration = Duration::from_millis(500);
const LONGEST_RETRANSMIT: Duration = Duration::from_secs(2);
const RETRANSMITS: u32 = 5;
/// Distance from the library's zero: it subtracts from times, and none may become negative.
const EPOCH: Duration = Duration::from_secs(86_400);
/// Shortest wait between two calls of the library, lest it spin.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// Most outstanding requests; a response to any other is a stranger's.
const MAX_ASKED: usize = 2 * crate::MAX_PEERS;

turn_client_proto::impl_client!(pub(crate) AnyClient, (Udp, TurnClientUdp), (Tcp, TurnClientTcp));

/// An allocation, or the attempt to get one.
pub(crate) struct Control {
    client: AnyClient,
    server: Server,
    /// Transactions of the latest requests that have no answer yet.
    asked: VecDeque<[u8; 12]>,
    /// The error code of the message being handled.
    code: Option<u16>,
}

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The library took it.
    Known,
    /// The server refuses the user name or the password.
    Unauthorized,
    /// Forged, late, or no STUN message.
    Stranger,
}

/// A change that the library reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There is an allocation.
    Allocated(SocketAddr),
    /// There is none of a family, or there is none any longer.
    Failed(Failure),
    /// A peer has its channel.
    Bound(SocketAddr),
    /// A peer gets no channel, or has lost it.
    NotBound(SocketAddr, Failure),
}

impl Control {
    /// Makes a client that asks for an address of each family of `peers`.
    pub(crate) fn new(server: Server, credentials: &Credentials, peers: &[SocketAddr]) -> Self {
        let mut config = TurnConfig::new(credentials.for_library());
        config.set_allocation_transport(TransportType::Udp);
        let wants = |is_ipv4: bool| peers.iter().any(|peer| peer.is_ipv4() == is_ipv4);
        if !wants(true) && wants(false) {
            config.set_address_family(AddressFamily::IPV6);
        } else if wants(false) {
            config.add_address_family(AddressFamily::IPV6);
        }
        config.set_request_retransmits(
            FIRST_RETRANSMIT,
            LONGEST_RETRANSMIT,
            RETRANSMITS,
            LONGEST_RETRANSMIT,
        );
        let local = local_of(server.address);
        let client = match server.transport {
            Transport::Udp => TurnClientUdp::allocate(local, server.address, config).into(),
            Transport::Stream => TurnClientTcp::allocate(local, server.address, config).into(),
        };
        Self {
            client,
            server,
            asked: VecDeque::new(),
            code: None,
        }
    }

    /// Takes a STUN message from the server.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Handled {
        let Ok(message) = Message::from_bytes(bytes) else {
            return Handled::Stranger;
        };
        let transaction = transaction_of(bytes);
        let asked = self.asked.iter().position(|it| Some(*it) == transaction);
        if asked.and_then(|n| self.asked.remove(n)).is_some() {
            let error = message.attribute::<ErrorCode>();
            self.code = error.ok().map(|error| error.code());
        }
        let local = local_of(self.server.address);
        let transmit = Transmit::new(bytes, self.client.transport(), self.server.address, local);
        match self.client.recv(transmit, at(now)) {
            TurnRecvRet::Handled => Handled::Known,
            // The library would wait for a better answer until its request times out.
            _ if self.code == Some(ErrorCode::UNAUTHORIZED) => Handled::Unauthorized,
            _ => Handled::Stranger,
        }
    }

    /// Advances the library's timers; returns when to do so again, or `None` if the client has ended.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Duration> {
        // That a signed request has timed out, the library says only when it is called once more.
        let _ = self.client.poll(at(now));
        match self.client.poll(at(now)) {
            TurnPollRet::WaitUntil(until) => {
                let wait = until.duration_since(at(now));
                Some(now + wait.max(SHORTEST_WAIT))
            }
            TurnPollRet::Closed => None,
            // Only TCP allocations have these.
            TurnPollRet::AllocateTcpSocket { .. } | TurnPollRet::TcpClose { .. } => {
                Some(now + SHORTEST_WAIT)
            }
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let transmit = self.client.poll_transmit(at(now))?;
        let request = transmit.data.as_ref().to_vec();
        if let Some(transaction) = transaction_of(&request)
            && !self.asked.contains(&transaction)
        {
            if self.asked.len() == MAX_ASKED {
                self.asked.pop_front();
            }
            self.asked.push_back(transaction);
        }
        Some(request)
    }

    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        loop {
            let change = match self.client.poll_event()? {
                TurnEvent::AllocationCreated(_, relayed) => Change::Allocated(relayed),
                TurnEvent::AllocationCreateFailed(_) => Change::Failed(self.failure()),
                TurnEvent::ChannelCreated(_, peer) => Change::Bound(peer),
                TurnEvent::ChannelCreateFailed(_, peer) => Change::NotBound(peer, self.failure()),
                _ => continue,
            };
            return Some(change);
        }
    }

    /// Asks for a channel to `peer`; returns whether the request was made or is under way.
    pub(crate) fn bind(&mut self, peer: SocketAddr, now: Duration) -> bool {
        self.client
            .bind_channel(TransportType::Udp, peer, at(now))
            .is_ok()
    }

    /// The channel that leads to `peer` now.
    pub(crate) fn number_of(&mut self, peer: SocketAddr, now: Duration) -> Option<ChannelNumber> {
        let sent = self
            .client
            .send_to(TransportType::Udp, peer, &[][..], at(now));
        let DelayedMessageOrChannelSend::Channel(channel) = sent.ok()??.data else {
            return None;
        };
        let frame = channel.build();
        let &[c0, c1, ..] = frame.as_slice() else {
            return None;
        };
        ChannelNumber::new(u16::from_be_bytes([c0, c1]))
    }

    /// Asks the server to end the allocation.
    pub(crate) fn delete(&mut self, now: Duration) {
        // It fails only if there is no allocation.
        let _ = self.client.delete(at(now));
    }

    fn failure(&self) -> Failure {
        self.code.map_or(Failure::Silent, Failure::of_code)
    }

    /// Forgets the code of the last message, so that a later timeout is not taken for its answer.
    pub(crate) fn forget_code(&mut self) {
        self.code = None;
    }
}

/// Leaves out the library's client, which prints the password.
impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Reads the transaction identifier of a STUN message (RFC 8489 §5).
fn transaction_of(message: &[u8]) -> Option<[u8; 12]> {
    message.get(8..20)?.try_into().ok()
}

/// The library compares this address with that of each message; the real one is the socket's business.
fn local_of(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], 1)),
        SocketAddr::V6(_) => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1)),
    }
}

fn at(now: Duration) -> Instant {
    let nanos = (EPOCH + now).as_nanos();
    Instant::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX / 2))
}
