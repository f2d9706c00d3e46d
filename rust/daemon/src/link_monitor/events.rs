//! The kernel's notifications about links, in other network namespaces too, and about routes and
//! rules in this one.

use std::io;

use convoy_netlink::{Link, Notice, Notices, Topic};

use super::place::Place;

/// A subscription to every change of a link, a route or a rule.
pub(super) struct Events(Notices);

/// A change of the interface or of the routes.
pub(super) enum Event {
    /// The interface changed; this is its new state.
    Changed(Box<Link>),
    /// The interface was deleted, or moved to another network namespace.
    Gone,
    /// A route or a rule changed in this network namespace.
    Routes,
    /// Notifications were lost: the socket overflowed, or one could not be parsed.
    Lost,
}

impl Events {
    pub(super) fn listen() -> io::Result<Self> {
        let topics = [Topic::Links, Topic::Routes, Topic::Rules];
        Ok(Self(Notices::subscribe(&topics)?))
    }

    /// Makes `next` report what happens at `place`. Returns whether it did not before, so that
    /// earlier events there were missed.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_BROADCAST`, which is needed only for another network namespace.
    pub(super) fn follow(&mut self, place: Place) -> io::Result<bool> {
        Ok(self.0.hear_other_namespaces(place.namespace.is_some())?)
    }

    /// Waits for the next event of the interface at `place`, or of the routes here.
    pub(super) async fn next(&mut self, place: Place) -> io::Result<Event> {
        loop {
            let event = match self.next_of_any().await? {
                (event @ (Event::Routes | Event::Lost), None, None) => event,
                (event, namespace, Some(index)) if is(place, namespace, index) => event,
                _ => continue,
            };
            return Ok(event);
        }
    }

    /// Waits until an interface here is new or has changed, or routes here have.
    pub(super) async fn next_here(&mut self) -> io::Result<Event> {
        loop {
            let (event, namespace, _) = self.next_of_any().await?;
            if namespace.is_none() && !matches!(event, Event::Gone) {
                return Ok(event);
            }
        }
    }

    /// The next event of any interface, with its network namespace unless that is ours, and its index.
    async fn next_of_any(&mut self) -> io::Result<(Event, Option<i32>, Option<u32>)> {
        loop {
            let (notice, namespace) = self.0.next().await?;
            if let Some((event, index)) = event_of(notice) {
                return Ok((event, namespace, index));
            }
        }
    }
}

fn is(place: Place, namespace: Option<i32>, index: u32) -> bool {
    place == Place { namespace, index }
}

/// Turns a notice into an event and the interface it concerns.
fn event_of(notice: Notice) -> Option<(Event, Option<u32>)> {
    match notice {
        Notice::Link { link, .. } => {
            let index = link.index;
            Some((Event::Changed(Box::new(link)), Some(index)))
        }
        Notice::LinkGone { index, .. } => Some((Event::Gone, Some(index))),
        Notice::Route { .. } | Notice::Rule { .. } => Some((Event::Routes, None)),
        Notice::Lost | Notice::Unreadable => Some((Event::Lost, None)),
        Notice::Address { .. } | Notice::Other => None,
    }
}
