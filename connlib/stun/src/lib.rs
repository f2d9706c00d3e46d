//! A STUN client (RFC 8489): the addresses at which the internet sees a socket, as a pure state machine.
//!
//! The owner of the socket drives it thus:
//!
//! 1. [`Client::set_servers`], and [`Client::set_wanted`] while the addresses are of use. Otherwise nothing is sent.
//! 2. [`Client::handle_datagram`] for each datagram that [`is_message`].
//! 3. [`Client::poll_transmit`] until it is empty, now and when [`Client::poll_timeout`] has passed.
//! 4. [`Client::take_changed`], then [`Client::addresses`].
//!
//! A server is asked again every [`REFRESH`], which also keeps the NAT's mapping. One that does not answer
//! [`MAX_REQUESTS`] requests, at intervals that double, is asked again after [`PAUSE`]. A request is [`REQUEST_LEN`]
//! bytes long.
//!
//! The state machine of an interface may call it. It never opens a socket, reads a clock or draws a number, and never
//! answers anybody: to strangers, the port is silent. An answer counts only if it comes from the server that was asked
//! and repeats the 96 random bits of the request.

use std::{net::SocketAddr, time::Duration};

use stun_types::{
    attribute::{Attribute as _, AttributeType, XorMappedAddress},
    message::{
        BINDING, Message, MessageClass, MessageType, MessageWrite as _, MessageWriteVec,
        TransactionId,
    },
};

/// Most servers that are asked.
pub const MAX_SERVERS: usize = 8;
/// Requests that go unanswered before a server is left alone (RFC 8489 §6.2.1).
pub const MAX_REQUESTS: u32 = 7;
/// Length of a request in bytes: its header.
pub const REQUEST_LEN: usize = 20;
/// Time between an answer and the next request: NATs forget a flow after 30 s or more (RFC 4787).
pub const REFRESH: Duration = Duration::from_secs(20);
/// Time for which a server that does not answer is left alone.
pub const PAUSE: Duration = Duration::from_secs(60);
/// Time until the second request, doubled each time (RFC 8489 §6.2.1).
const FIRST_INTERVAL: Duration = Duration::from_millis(500);
/// Time that the last request has for its answer.
const LAST_WAIT: Duration = Duration::from_secs(8);

/// Asks servers for the addresses of one socket.
#[derive(Debug, Default)]
pub struct Client {
    servers: Vec<Server>,
    is_wanted: bool,
    has_changed: bool,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// The request that awaits its answer.
    pending: Option<TransactionId>,
    /// Requests without an answer.
    unanswered: u32,
    /// When to ask.
    next: Option<Duration>,
    mapped: Option<SocketAddr>,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The server.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Whether a datagram has the form of a STUN message (RFC 8489 §5). No message of WireGuard has.
#[must_use]
pub fn is_message(datagram: &[u8]) -> bool {
    const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
    let Some(&[first, _, high, low, m0, m1, m2, m3]) = datagram.first_chunk() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    first < 0x40 && [m0, m1, m2, m3] == MAGIC_COOKIE && datagram.len() == REQUEST_LEN + length
}

impl Client {
    /// Sets the servers, [`MAX_SERVERS`] at most. One that stays keeps what it has told.
    pub fn set_servers(&mut self, servers: &[SocketAddr], now: Duration) {
        let wanted = &servers[..servers.len().min(MAX_SERVERS)];
        let former = std::mem::take(&mut self.servers);
        let (stay, leave): (Vec<_>, Vec<_>) = former
            .into_iter()
            .partition(|server| wanted.contains(&server.address));
        self.has_changed |= leave.iter().any(|server| server.mapped.is_some());
        self.servers = stay;
        for address in wanted {
            if !self.servers.iter().any(|server| server.address == *address) {
                self.servers.push(Server {
                    address: *address,
                    pending: None,
                    unanswered: 0,
                    next: self.is_wanted.then_some(now),
                    mapped: None,
                });
            }
        }
    }

    /// Begins to ask, or stops.
    pub fn set_wanted(&mut self, is_wanted: bool, now: Duration) {
        if self.is_wanted == is_wanted {
            return;
        }
        self.is_wanted = is_wanted;
        for server in &mut self.servers {
            server.pending = None;
            server.unanswered = 0;
            server.next = is_wanted.then_some(now);
        }
    }

    /// Forgets the addresses and asks again: call it when the network has changed, or the socket is another one.
    pub fn network_changed(&mut self, now: Duration) {
        for server in &mut self.servers {
            self.has_changed |= server.mapped.take().is_some();
            server.pending = None;
            server.unanswered = 0;
            server.next = self.is_wanted.then_some(now);
        }
    }

    /// Handles a datagram; returns whether it answers a request.
    pub fn handle_datagram(&mut self, from: SocketAddr, datagram: &[u8], now: Duration) -> bool {
        let Ok(message) = Message::from_bytes(datagram) else {
            return false;
        };
        let id = message.transaction_id();
        let asked = |server: &&mut Server| server.address == from && server.pending == Some(id);
        let Some(server) = self.servers.iter_mut().find(asked) else {
            return false;
        };
        if !message.has_method(BINDING) || !message.is_response() {
            return false;
        }
        let mapped = mapped_address(&message).filter(|mapped| is_usable(*mapped, from));
        server.pending = None;
        server.next = Some(now + if mapped.is_some() { REFRESH } else { PAUSE });
        server.unanswered = 0;
        self.has_changed |= server.mapped != mapped;
        server.mapped = mapped;
        true
    }

    /// The next request to send. `random` makes its number; without one, none is sent.
    pub fn poll_transmit(
        &mut self,
        random: impl FnOnce() -> Option<[u8; 12]>,
        now: Duration,
    ) -> Option<Transmit> {
        let is_due = |server: &&mut Server| server.next.is_some_and(|at| at <= now);
        let server = self.servers.iter_mut().find(is_due)?;
        if server.unanswered == MAX_REQUESTS {
            server.pending = None;
            server.unanswered = 0;
            server.next = Some(now + PAUSE);
            // Whatever it told long ago is true no longer.
            self.has_changed |= server.mapped.take().is_some();
            return None;
        }
        let id = match server.pending {
            Some(id) => id,
            None => {
                let mut number = [0; 16];
                number[4..].copy_from_slice(&random()?);
                u128::from_be_bytes(number).into()
            }
        };
        server.pending = Some(id);
        server.unanswered += 1;
        let interval = match server.unanswered {
            MAX_REQUESTS => LAST_WAIT,
            sent => FIRST_INTERVAL * (1 << (sent - 1)),
        };
        server.next = Some(now + interval);
        let kind = MessageType::from_class_method(MessageClass::Request, BINDING);
        let bytes = Message::builder(kind, id, MessageWriteVec::new()).finish();
        let to = server.address;
        Some(Transmit { to, bytes })
    }

    /// When to call [`Self::poll_transmit`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.servers.iter().filter_map(|server| server.next).min()
    }

    /// Whether [`Self::addresses`] has changed since the last call.
    #[must_use]
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The addresses at which servers see the socket, each one once.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.servers.iter().filter_map(|it| it.mapped).collect();
        let mut seen = Vec::with_capacity(all.len());
        all.retain(|address| {
            let is_new = !seen.contains(address);
            seen.push(*address);
            is_new
        });
        all
    }
}

fn mapped_address(message: &Message<'_>) -> Option<SocketAddr> {
    if !message.has_class(MessageClass::Success) {
        return None;
    }
    let required = message.iter_attributes().map(|(_, it)| it.get_type());
    let is_known = |it: AttributeType| !it.comprehension_required() || KNOWN.contains(&it.value());
    let mut required = required;
    if !required.all(is_known) {
        return None;
    }
    let mapped = message.attribute::<XorMappedAddress>().ok()?;
    Some(mapped.addr(message.transaction_id()))
}

/// Comprehension-required attributes that a response to a request without credentials may have: MAPPED-ADDRESS,
/// XOR-MAPPED-ADDRESS, and those that servers of RFC 3489 add: SOURCE-ADDRESS and CHANGED-ADDRESS.
const KNOWN: [u16; 4] = [0x0001, 0x0020, 0x0004, 0x0005];

/// Whether an address can be that of a socket which has asked this server.
fn is_usable(mapped: SocketAddr, server: SocketAddr) -> bool {
    let ip = mapped.ip();
    let is_of_one_host = !ip.is_unspecified() && !ip.is_multicast();
    is_of_one_host && mapped.port() != 0 && mapped.is_ipv4() == server.is_ipv4()
}

#[cfg(test)]
mod tests;
