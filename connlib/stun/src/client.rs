//! The client of one socket: several servers, of both address families.

use std::{net::SocketAddr, time::Duration};

use crate::{
    message::{REQUEST_LEN, answered, canonical, is_usable, mapped_address},
    pace::Pace,
    server::Server,
};

/// Most servers that are asked; further ones are ignored.
pub const MAX_SERVERS: usize = 4;

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The server.
    pub to: SocketAddr,
    /// The datagram.
    pub bytes: [u8; REQUEST_LEN],
}

/// Asks STUN servers by which addresses they see a socket.
#[derive(Debug, Default)]
pub struct Client {
    servers: Vec<Server>,
    is_started: bool,
    is_changed: bool,
    pace: Pace,
}

impl Client {
    /// A client that asks nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the servers by the first [`MAX_SERVERS`] of these; the former ones among them keep their answers, and
    /// the new ones are asked at once. Ignores duplicates, multicast and unspecified addresses, and port 0.
    pub fn set_servers(&mut self, servers: &[SocketAddr], now: Duration) {
        self.change(|client| {
            let mut former = std::mem::take(&mut client.servers);
            for address in servers.iter().copied() {
                let is_known = client.servers.iter().any(|it| it.is_at(address));
                if is_known || !is_usable(canonical(address)) {
                    continue;
                }
                if client.servers.len() == MAX_SERVERS {
                    break;
                }
                let at = former.iter().position(|it| it.is_at(address));
                let kept = at.map(|at| former.swap_remove(at));
                let server = kept.unwrap_or_else(|| Server::new(address, now));
                client.servers.push(server);
            }
        });
    }

    /// Begins to ask the servers, if it has not begun, and keeps asking, so that NATs keep their mappings.
    pub fn start(&mut self, now: Duration) {
        if !self.is_started {
            self.is_started = true;
            self.ask_anew(now);
        }
    }

    /// Stops asking, and forgets the addresses: NATs may forget them from now on.
    pub fn stop(&mut self) {
        self.is_started = false;
        self.change(|client| client.servers.iter_mut().for_each(Server::forget));
    }

    /// Forgets the addresses and asks again at once; half a second after the last request at the earliest.
    pub fn network_changed(&mut self, now: Duration) {
        self.ask_anew(now);
    }

    /// Returns the next request to be sent. `random` draws 96 unpredictable bits; without them, nothing is asked for
    /// half a second.
    pub fn poll_transmit(
        &mut self,
        random: impl FnOnce() -> Option<[u8; 12]>,
        now: Duration,
    ) -> Option<Transmit> {
        if !self.is_started || now < self.pace.free_at() {
            return None;
        }
        let servers = self.servers.iter_mut();
        let due = servers.filter(|it| it.next_request().is_some_and(|at| at <= now));
        let server = due.min_by_key(|it| it.last_sent)?;
        let bytes = server.request(random, now)?;
        self.pace.count(now);
        let to = server.address;
        Some(Transmit { to, bytes })
    }

    /// Handles a datagram. Returns whether it answers a request under way; if not, nothing has changed.
    ///
    /// An answer without a usable address counts as none: the server rests.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) -> bool {
        let Some(id) = answered(bytes) else {
            return false;
        };
        let mut servers = self.servers.iter();
        let Some(at) = servers.position(|it| it.is_at(from) && it.has_asked(id)) else {
            return false;
        };
        let former = self.servers[at].mapped;
        let mapped = mapped_address(bytes);
        self.change(|client| client.servers[at].end(mapped, now));
        if mapped.is_some() && former != mapped {
            self.verify(former, now);
        }
        true
    }

    /// Returns when to call [`Self::handle_timeout`] and [`Self::poll_transmit`]; `None` while nothing is asked.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let servers = self.servers.iter().filter(|_| self.is_started);
        let free_at = self.pace.free_at();
        let next = servers.filter_map(|it| {
            let request = it.next_request().map(|at| at.max(free_at));
            request.or(it.ends_at())
        });
        next.min()
    }

    /// Ends the requests that were not answered in time. The addresses that those servers named are forgotten.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.change(|client| {
            for server in &mut client.servers {
                if server.ends_at().is_some_and(|at| at <= now) {
                    server.end(None, now);
                }
            }
        });
    }

    /// Returns the socket's addresses beyond NATs: the last one that each server named, without duplicates, in the
    /// order of the servers.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let named = self.servers.iter().enumerate();
        let named = named.filter_map(|(at, it)| Some((at, it.mapped?)));
        let is_first = |(at, mapped): &(usize, SocketAddr)| {
            let mut former = self.servers[..*at].iter();
            former.all(|it| it.mapped != Some(*mapped))
        };
        named.filter(is_first).map(|(_, mapped)| mapped)
    }

    /// Returns whether [`Self::addresses`] have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    fn ask_anew(&mut self, now: Duration) {
        self.change(|client| {
            for server in &mut client.servers {
                server.forget();
                server.hurry(now);
            }
        });
    }

    /// Asks those servers at once that named an address which another one no longer names. Servers behind an
    /// endpoint-dependent NAT name different ones, so they do not set each other off.
    fn verify(&mut self, former: Option<SocketAddr>, now: Duration) {
        let servers = self.servers.iter_mut();
        let doubtful = servers.filter(|it| it.mapped.is_some() && it.mapped == former);
        doubtful.for_each(|it| it.hurry(now));
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before: Vec<_> = self.addresses().collect();
        change(self);
        self.is_changed |= !self.addresses().eq(before);
    }
}

#[cfg(test)]
mod tests;
