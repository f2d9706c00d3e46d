//! Allocations: asked for, released, and failed.

use std::time::Duration;

use super::{Client, Event, FIRST_PAUSE, LONGEST_PAUSE, State};
use crate::{
    control::Control, error::Failure, families::Families, refresh::Refresh, server::Transport,
    watch::Verdict,
};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(15);

impl Client {
    pub(super) fn begin(&mut self, now: Duration) {
        self.forget_channels(now);
        match self.server.transport {
            Transport::Udp => self.allocate(),
            Transport::Stream => {
                self.state = State::Connecting {
                    until: now + CONNECTING,
                };
                self.events.push_back(Event::Connect);
            }
        }
    }

    pub(super) fn allocate(&mut self) {
        self.asked_for = self.families();
        self.allocate_for(self.asked_for);
    }

    /// Asks for an address of each of these families.
    pub(super) fn allocate_for(&mut self, families: Families) {
        let control = Control::new(self.server, &self.credentials, families);
        self.state = State::Allocating(Box::new(control));
    }

    /// The families of all peers.
    pub(super) fn families(&self) -> Families {
        Families::of(self.peers.iter().map(|it| it.address))
    }

    /// Releases whatever this address has on the server, then allocates. A stream is closed instead, which
    /// does the same.
    pub(super) fn restart(&mut self, now: Duration) {
        self.forget_channels(now);
        match self.server.transport {
            Transport::Udp => self.release(now),
            Transport::Stream => {
                self.delete(now);
                self.events.push_back(Event::Close);
                self.begin(now);
            }
        }
    }

    pub(super) fn release(&mut self, now: Duration) {
        match Refresh::release(&self.credentials, now) {
            Some(release) => self.state = State::Releasing(Box::new(release)),
            None => self.allocate(),
        }
    }

    pub(super) fn fail(&mut self, failure: Failure, now: Duration) {
        self.forget_channels(now);
        if matches!(self.state, State::Ready { since, .. } if since + LONGEST_PAUSE <= now) {
            self.failures = 0;
        }
        let until = now + (FIRST_PAUSE * (1 << self.failures.min(6))).min(LONGEST_PAUSE);
        self.failures += 1;
        let is_udp = self.server.transport == Transport::Udp;
        if !is_udp {
            self.events.push_back(Event::Close);
        }
        // The server may still hold an allocation of this address.
        let may_hold = failure == Failure::Lost || matches!(self.state, State::Ready { .. });
        let releases = is_udp && may_hold;
        self.state = State::Paused {
            until,
            failure,
            releases,
        };
        self.events.push_back(Event::Failed(failure));
    }

    pub(super) fn reject(&mut self, now: Duration) {
        self.delete(now);
        self.fail(Failure::Address, now);
    }

    pub(super) fn delete(&mut self, now: Duration) {
        self.forget_channels(now);
        let (State::Allocating(control) | State::Ready { control, .. }) = &mut self.state else {
            return;
        };
        // It is sent once: nobody comes back to send it again.
        self.outbox.extend(control.release());
    }

    pub(super) fn forget_channels(&mut self, now: Duration) {
        self.watch.begin_anew();
        self.library_due = None;
        for peer in &mut self.peers {
            (peer.channel, peer.ask_at) = (None, Some(now));
        }
    }

    pub(super) fn judge(&mut self, verdict: Verdict, now: Duration) {
        match verdict {
            Verdict::Undecided => {}
            Verdict::Gone => self.fail(Failure::Silent, now),
            Verdict::Forgetful => {
                self.events.push_back(Event::Failed(Failure::Lost));
                self.restart(now);
            }
        }
    }
}
