//! Wraps the library's client: one allocation from its first request to its end.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use turn_client_proto::{
    api::{TurnConfig, TurnEvent, TurnPollRet, TurnRecvRet},
    prelude::TurnClientApi,
    stun::{
        Instant,
        agent::Transmit,
        types::{
            attribute::ErrorCode,
            message::{Message, TransactionId},
        },
    },
    tcp::TurnClientTcp,
    types::{AddressFamily, TransportType},
    udp::TurnClientUdp,
};

use crate::{
    bindings::Bindings,
    channel::ChannelNumber,
    credentials::Credentials,
    error::Failure,
    families::Families,
    request::transaction_of,
    server::{Server, Transport},
};

/// Time before a request over UDP goes again (RFC 8489 §6.2.1); it is given up after about eight seconds.
const FIRST_RETRANSMIT: Duration = Duration::from_millis(500);
/// Longest time before a request goes again.
const LONGEST_RETRANSMIT: Duration = Duration::from_secs(2);
const RETRANSMITS: u32 = 5;
/// Distance from the library's zero: it subtracts from times, and none may become negative.
const EPOCH: Duration = Duration::from_secs(86_400);
/// Shortest wait between two calls of the library, lest it spin.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// Most requests that are remembered; a response to any other is a stranger's.
const MAX_ASKED: usize = 16;

turn_client_proto::impl_client!(pub(crate) AnyClient, (Udp, TurnClientUdp), (Tcp, TurnClientTcp));

/// An allocation, or the attempt to get one.
pub(crate) struct Control {
    client: AnyClient,
    bindings: Bindings,
    server: Server,
    /// Families that it was made for.
    asked_for: Families,
    /// Families that the server has neither given nor refused.
    undecided: Families,
    /// Transactions of the latest requests of the library, and whether they have been answered.
    asked: VecDeque<(TransactionId, bool)>,
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
    /// There is none of this family, or none any longer.
    NotAllocated(AddressFamily, Failure),
    /// A peer has its channel.
    Bound(SocketAddr, ChannelNumber),
    /// A peer gets no channel, or has lost it.
    NotBound(SocketAddr, Failure),
}

impl Control {
    /// Makes a client that asks for an address of each of these families.
    pub(crate) fn new(server: Server, credentials: &Credentials, families: Families) -> Self {
        let mut config = TurnConfig::new(credentials.for_library());
        config.set_allocation_transport(TransportType::Udp);
        match families {
            Families::V6 => config.set_address_family(AddressFamily::IPV6),
            Families::BOTH => config.add_address_family(AddressFamily::IPV6),
            _ => {}
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
            bindings: Bindings::new(server.transport, credentials),
            server,
            asked_for: families,
            undecided: families,
            asked: VecDeque::new(),
            code: None,
        }
    }

    /// Returns whether a request was sent under this transaction, as far as it is remembered.
    pub(crate) fn has_asked(&self, transaction: TransactionId) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|(it, _)| *it == transaction) || self.bindings.have_asked(transaction)
    }

    /// Takes a STUN message from the server.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Handled {
        let Ok(message) = Message::from_bytes(bytes) else {
            return Handled::Stranger;
        };
        if self.bindings.handle(&message, now) {
            return Handled::Known;
        }
        let transaction = message.transaction_id();
        let asked = self.asked.iter_mut().find(|(it, _)| *it == transaction);
        if asked.is_some_and(|(_, is_answered)| !std::mem::replace(is_answered, true)) {
            let error = message.attribute::<ErrorCode>();
            self.code = error.ok().map(|error| error.code());
            if self.code == Some(ErrorCode::UNAUTHORIZED) {
                self.bindings.learn_nonce(&message);
            }
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
        let due = match self.client.poll(at(now)) {
            TurnPollRet::WaitUntil(until) => until.duration_since(at(now)),
            TurnPollRet::Closed => return None,
            // Only TCP allocations have these.
            TurnPollRet::AllocateTcpSocket { .. } | TurnPollRet::TcpClose { .. } => SHORTEST_WAIT,
        };
        let due = now + due.max(SHORTEST_WAIT);
        Some(self.bindings.due().map_or(due, |it| it.min(due)))
    }

    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let Some(transmit) = self.client.poll_transmit(at(now)) else {
            return self.bindings.poll_transmit(now);
        };
        let request = transmit.data.as_ref().to_vec();
        if let Some(transaction) = transaction_of(&request) {
            self.note_asked(transaction);
        }
        Some(request)
    }

    fn note_asked(&mut self, transaction: TransactionId) {
        self.asked.retain(|(it, _)| *it != transaction);
        if self.asked.len() == MAX_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((transaction, false));
    }

    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        while let Some(event) = self.client.poll_event() {
            match event {
                TurnEvent::AllocationCreated(_, relayed) => {
                    self.decide(relayed.is_ipv4());
                    return Some(Change::Allocated(relayed));
                }
                TurnEvent::AllocationCreateFailed(family) => {
                    self.decide(family == AddressFamily::IPV4);
                    let failure = self.code.map_or(Failure::Silent, Failure::of_code);
                    return Some(Change::NotAllocated(family, failure));
                }
                _ => {}
            }
        }
        self.bindings.poll_change()
    }

    /// Returns whether the server has neither given nor refused an address of some family.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided != Families::NONE
    }

    /// The families that it was made for.
    pub(crate) fn asked_for(&self) -> Families {
        self.asked_for
    }

    /// Asks for a channel to `peer`; returns whether there is one to ask for.
    pub(crate) fn bind(&mut self, peer: SocketAddr, now: Duration) -> bool {
        self.bindings.bind(peer, now)
    }

    /// Lets the channel to `peer` expire.
    pub(crate) fn rest(&mut self, peer: SocketAddr) {
        self.bindings.rest(peer);
    }

    /// Makes the request that ends the allocation; `None` if the server cannot have one.
    pub(crate) fn release(&mut self) -> Option<Vec<u8>> {
        self.bindings.release()
    }

    fn decide(&mut self, is_ipv4: bool) {
        match is_ipv4 {
            true => self.undecided.v4 = false,
            false => self.undecided.v6 = false,
        }
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
