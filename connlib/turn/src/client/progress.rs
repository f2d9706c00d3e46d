//! The progress of an allocation and its channels.

use std::{net::SocketAddr, time::Duration};

use turn_client_proto::types::AddressFamily;

use super::{Client, Event, LONGEST_PAUSE, State};
use crate::{
    MAX_PEERS,
    channel::ChannelNumber,
    control::Change,
    error::{Failure, STALE_NONCE},
    families::Families,
    request::Progress,
};

/// Most calls of the library in one step: each lets one transaction end.
const LIBRARY_CALLS: usize = 3 * MAX_PEERS;

impl Client {
    /// Runs the library until it has nothing more to say.
    pub(super) fn advance(&mut self, now: Duration) {
        if let State::Releasing(release) = &mut self.state {
            let (progress, request) = release.poll(now);
            self.outbox.extend(request);
            if progress == Progress::Silent {
                self.allocate();
            }
        }
        for _ in 0..LIBRARY_CALLS {
            let (State::Allocating(control) | State::Ready { control, .. }) = &mut self.state
            else {
                return;
            };
            let due = control.poll(now);
            let request = control.poll_transmit(now);
            let change = control.poll_change();
            self.library_due = due;
            let is_quiet = request.is_none() && change.is_none();
            self.outbox.extend(request);
            if let Some(change) = change {
                self.handle_change(change, now);
            } else if due.is_none() {
                let failure = match &self.state {
                    State::Ready { .. } => Failure::Lost,
                    _ => Failure::Silent,
                };
                self.fail(failure, now);
            }
            if is_quiet && !self.ask_for_channels(now) {
                break;
            }
        }
        if let State::Allocating(control) | State::Ready { control, .. } = &mut self.state {
            control.forget_code();
        }
    }

    fn handle_change(&mut self, change: Change, now: Duration) {
        match change {
            Change::Allocated(relayed)
                if self.serves(relayed) || !self.server.may_give(relayed) =>
            {
                self.reject(now);
            }
            Change::Allocated(relayed) => self.allocated(relayed, now),
            Change::NotAllocated(family, failure) => self.not_allocated(family, failure, now),
            Change::Bound(address, channel) => self.bound(address, channel),
            Change::NotBound(address, failure) => self.not_bound(address, failure, now),
        }
    }

    fn allocated(&mut self, relayed: SocketAddr, now: Duration) {
        self.events.push_back(Event::Ready(relayed));
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Allocating(control) => State::Ready {
                control,
                relayed: relayed.into(),
                since: now,
            },
            // The address of the other family.
            mut other => {
                if let State::Ready { relayed: known, .. } = &mut other {
                    known.insert(relayed);
                }
                other
            }
        };
    }

    /// Takes note that there is no address of a family. Peers of the other one are served all the same.
    fn not_allocated(&mut self, family: AddressFamily, failure: Failure, now: Duration) {
        match &self.state {
            State::Ready { relayed, .. } if !relayed.has(family == AddressFamily::IPV4) => {
                self.events.push_back(Event::Failed(Failure::Family));
            }
            State::Allocating(control) if control.is_undecided() => {}
            // The server may know only requests for one.
            State::Allocating(control)
                if failure == Failure::Family && control.asked_for() == Families::BOTH =>
            {
                self.allocate_for(Families::V4);
            }
            _ => self.fail(failure, now),
        }
    }

    fn bound(&mut self, address: SocketAddr, channel: ChannelNumber) {
        if let Some(peer) = self.peers.iter_mut().find(|it| it.address == address) {
            peer.channel = Some(channel);
            self.events.push_back(Event::Bound(address));
        }
    }

    fn not_bound(&mut self, address: SocketAddr, failure: Failure, now: Duration) {
        let Some(peer) = self.peers.iter_mut().find(|it| it.address == address) else {
            return;
        };
        let failure = match peer.channel {
            // The server refuses to refresh it, or does not answer: it has forgotten the allocation.
            Some(_) => Failure::Lost,
            None => failure,
        };
        let is_servers = matches!(
            failure,
            Failure::Lost | Failure::Silent | Failure::Refused(STALE_NONCE)
        );
        if is_servers {
            return self.fail(failure, now);
        }
        peer.ask_at = Some(now + LONGEST_PAUSE);
        self.events.push_back(Event::Failed(failure));
    }

    /// Asks for the channels that are due; returns whether it has.
    fn ask_for_channels(&mut self, now: Duration) -> bool {
        let State::Ready {
            control, relayed, ..
        } = &mut self.state
        else {
            return false;
        };
        let mut asked = false;
        for peer in &mut self.peers {
            let is_due = peer.ask_at.is_some_and(|at| at <= now);
            if !is_due || relayed.reaching(peer.address).is_none() {
                continue;
            }
            if control.bind(peer.address, now) {
                peer.ask_at = None;
                asked = true;
            } else {
                peer.ask_at = Some(now + LONGEST_PAUSE);
            }
        }
        asked
    }
}
