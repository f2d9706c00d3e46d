//! Names that the client of an association sends datagrams to.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use convoy_network::{
    counters::{Counters, Refusal},
    expiry::RETRY,
    waiting::Early,
};
use tokio::{sync::oneshot, time::Instant};

use super::Rule;

/// Names that are remembered; another one replaces the one that was not used for longest.
const MAX_NAMES: usize = 64;
/// Time for which a name's address is remembered; a failure only for [`RETRY`].
const NAME_LIFE: Duration = Duration::from_secs(60);
/// Names that are looked up at once: for another one, the oldest look-up is given up.
const MAX_LOOKUPS: usize = 64;
/// Names that are looked up at once where there is no memory for datagrams that wait, which others may have. This bounds
/// the look-ups of all associations.
const FEW_LOOKUPS: usize = 4;
/// Datagrams that wait for one name.
const MAX_EARLY: usize = 64;
/// Bytes that wait for one name; `Waiting` bounds those of all names.
const MAX_EARLY_BYTES: usize = 64 << 10;

/// A host's name and a port.
pub(super) type Named = (String, u16);

/// Names whose addresses are known, or why none may be used, and datagrams for those that are being looked up.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<Named, Known>,
    pending: HashMap<Named, Pending>,
    unasked: Vec<LookUp>,
    /// Number of look-ups so far.
    serial: u64,
}

struct Known {
    found: Result<SocketAddr, Refusal>,
    /// When it is to be looked up again.
    end: Instant,
    used: Instant,
}

struct Pending {
    serial: u64,
    waiting: Vec<Early>,
    /// Dropping it gives the look-up up.
    _alive: oneshot::Sender<()>,
}

/// A name that is to be looked up.
pub(super) struct LookUp {
    pub(super) name: Named,
    /// Fails once nobody waits for the outcome.
    pub(super) given_up: oneshot::Receiver<()>,
}

/// Destination of a datagram for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    To(SocketAddr),
    Refused(Refusal),
    /// It waits until the name was looked up, or was dropped.
    Waits,
}

impl Names {
    /// Finds a name's address, or keeps the datagram until that is known.
    pub(super) fn route(
        &mut self,
        name: &Named,
        (datagram, class): (&[u8], u8),
        rule: Rule<'_>,
    ) -> Route {
        let Rule {
            counters, early, ..
        } = rule;
        let now = Instant::now();
        if let Some(known) = self.known.get_mut(name) {
            known.used = now;
            let (found, end) = (known.found, known.end);
            if now < end {
                return found.map_or_else(Route::Refused, Route::To);
            }
            // A stream does not wait for its name to be looked up again.
            if let Ok(address) = found
                && now < end + NAME_LIFE
            {
                self.look_up(name, counters);
                return Route::To(address);
            }
        }
        let held = early.hold(datagram, class);
        if held.is_none() {
            counters.refuse(Refusal::TooMuchWaiting);
            counters.drop_datagrams(1);
            if self.pending.len() >= FEW_LOOKUPS {
                return Route::Waits;
            }
        }
        let waiting = self.look_up(name, counters);
        let bytes: usize = waiting.iter().map(|it| it.len()).sum();
        match waiting.len() >= MAX_EARLY || bytes + datagram.len() > MAX_EARLY_BYTES {
            true => counters.drop_datagrams(held.iter().count()),
            false => waiting.extend(held),
        }
        Route::Waits
    }

    /// Begins to look a name up, unless it is being looked up; returns the datagrams that wait for it.
    fn look_up(&mut self, name: &Named, counters: &Counters) -> &mut Vec<Early> {
        if !self.pending.contains_key(name) && self.pending.len() >= MAX_LOOKUPS {
            self.give_up_oldest(counters);
        }
        let Self {
            pending,
            unasked,
            serial,
            ..
        } = self;
        let pending = pending.entry(name.clone()).or_insert_with(|| {
            let (alive, given_up) = oneshot::channel();
            let name = name.clone();
            unasked.push(LookUp { name, given_up });
            *serial += 1;
            Pending {
                serial: *serial,
                waiting: Vec::new(),
                _alive: alive,
            }
        });
        &mut pending.waiting
    }

    fn give_up_oldest(&mut self, counters: &Counters) {
        let oldest = self.pending.iter().min_by_key(|(_, it)| it.serial);
        let oldest = oldest.map(|(name, _)| name.clone());
        let given_up = oldest.and_then(|name| self.pending.remove(&name));
        counters.drop_datagrams(given_up.map_or(0, |it| it.waiting.len()));
    }

    /// Returns the names that are to be looked up since the last call.
    pub(super) fn unasked(&mut self) -> impl Iterator<Item = LookUp> {
        self.unasked.drain(..)
    }

    /// Records the outcome of a look-up; returns what is known of the name now, and the datagrams that have waited for
    /// it. A look-up that fails leaves a known address as it is, but a refusal by policy replaces it.
    pub(super) fn found(
        &mut self,
        name: Named,
        found: Result<SocketAddr, Refusal>,
    ) -> (Result<SocketAddr, Refusal>, Vec<Early>) {
        let pending = self.pending.remove(&name);
        let waiting = pending.map_or_else(Vec::new, |it| it.waiting);
        let now = Instant::now();
        let before = self.known.get(&name);
        let used = before.map_or(now, |it| it.used);
        let found = match (found, before.map(|it| it.found)) {
            (Err(Refusal::Forbidden | Refusal::TargetDenied), _) => found,
            (Err(_), Some(Ok(address))) => Ok(address),
            _ => found,
        };
        let is_another = before.is_none();
        if is_another && self.known.len() >= MAX_NAMES {
            self.forget_unused();
        }
        let life = if found.is_ok() { NAME_LIFE } else { RETRY };
        let end = now + life;
        self.known.insert(name, Known { found, end, used });
        (found, waiting)
    }

    fn forget_unused(&mut self) {
        let unused = self.known.iter().min_by_key(|(_, it)| it.used);
        if let Some(name) = unused.map(|(name, _)| name.clone()) {
            self.known.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use convoy_network::{
        occupants::{Holder, Occupants},
        waiting::{Part, Waiting},
    };
    use tokio::{sync::oneshot::error::TryRecvError, time::advance};

    use super::*;
    use crate::socks::{Flows, TargetCount};

    fn target(number: u16) -> SocketAddr {
        ([192, 0, 2, 1], number).into()
    }

    fn name(number: usize) -> Named {
        (format!("{number}.example"), 53)
    }

    /// Bytes of datagrams that have waited, all of the same class.
    fn bytes(waited: &[Early]) -> Vec<&[u8]> {
        assert!(waited.iter().all(|it| it.class() == 7));
        waited.iter().map(|it| &**it).collect()
    }

    /// Names, and what was dropped.
    #[derive(Default)]
    struct Scene {
        names: Names,
        counters: Counters,
        waiting: Waiting,
    }

    impl Scene {
        fn route(&mut self, name: &Named, datagram: &[u8]) -> Route {
            let early = Part {
                waiting: &self.waiting,
                group: 0,
            };
            let flows = Flows {
                all: &Occupants::default(),
                client: Holder::of_peer(0, 0),
                most: 0,
                targets: &TargetCount::default(),
            };
            let counters = &self.counters;
            let rule = Rule {
                counters,
                early,
                flows,
            };
            self.names.route(name, (datagram, 7), rule)
        }

        /// The names that are to be looked up since the last call.
        fn asked(&mut self) -> Vec<Named> {
            self.names.unasked().map(|it| it.name).collect()
        }

        fn dropped(&self) -> u64 {
            self.counters.totals().dropped
        }
    }

    #[test]
    fn a_slow_name_keeps_a_few_datagrams_and_leaves_room_for_others() {
        let mut scene = Scene::default();
        for number in 0..100 {
            assert_eq!(scene.route(&name(0), &[number]), Route::Waits);
        }
        assert_eq!(
            scene.route(&name(1), &[0; MAX_EARLY_BYTES + 1]),
            Route::Waits
        );
        assert_eq!(scene.route(&name(1), b"short"), Route::Waits);
        assert_eq!(scene.asked(), [name(0), name(1)]);
        assert_eq!(scene.dropped(), 100 - MAX_EARLY as u64 + 1);
        let (found, waited) = scene.names.found(name(0), Ok(target(7)));
        assert_eq!(found, Ok(target(7)));
        let first: Vec<_> = (0..MAX_EARLY as u8).map(|number| vec![number]).collect();
        assert_eq!(bytes(&waited), first);
        assert_eq!(scene.route(&name(0), b"x"), Route::To(target(7)));
        let (_, waited) = scene.names.found(name(1), Err(Refusal::UnknownName));
        assert_eq!(bytes(&waited), [b"short"]);
    }

    #[test]
    fn few_names_are_looked_up_for_which_no_datagram_can_wait() {
        let mut scene = Scene::default();
        let waiting = scene.waiting.clone();
        let hold = || waiting.hold(0, &[0; 10_000], 0);
        let mut all: Vec<_> = std::iter::from_fn(hold).collect();
        for number in 0..MAX_LOOKUPS {
            assert_eq!(scene.route(&name(number), &[0; 10_000]), Route::Waits);
        }
        let first: Vec<_> = (0..FEW_LOOKUPS).map(name).collect();
        assert_eq!(scene.asked(), first);
        assert_eq!(scene.dropped(), MAX_LOOKUPS as u64);
        let refused = scene.counters.totals().refused(Refusal::TooMuchWaiting);
        assert_eq!(refused, MAX_LOOKUPS as u64);
        all.pop();
        assert_eq!(scene.route(&name(7), b"x"), Route::Waits);
        assert_eq!(scene.asked(), [name(7)]);
    }

    #[test]
    fn a_new_name_is_always_looked_up_and_the_oldest_look_up_gives_way() {
        let mut scene = Scene::default();
        for number in 0..MAX_LOOKUPS {
            assert_eq!(scene.route(&name(number), b"x"), Route::Waits);
        }
        let mut lookups: Vec<_> = scene.names.unasked().collect();
        assert_eq!(scene.route(&name(MAX_LOOKUPS), b"x"), Route::Waits);
        assert_eq!(scene.asked(), [name(MAX_LOOKUPS)]);
        assert_eq!(scene.names.pending.len(), MAX_LOOKUPS);
        let is_over = |it: &mut LookUp| it.given_up.try_recv() == Err(TryRecvError::Closed);
        let over: Vec<_> = lookups.iter_mut().map(is_over).collect();
        assert!(over[0] && over[1..].iter().all(|it| !it));
        assert_eq!(scene.dropped(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_goes_on_while_its_name_is_looked_up_again() {
        let mut scene = Scene::default();
        let _ = scene.names.found(name(0), Ok(target(1)));
        advance(NAME_LIFE).await;
        for _ in 0..100 {
            assert_eq!(scene.route(&name(0), b"x"), Route::To(target(1)));
        }
        assert_eq!(scene.asked(), [name(0)]);
        assert_eq!(scene.dropped(), 0);
        // Name servers that fail end nothing.
        let (kept, _) = scene.names.found(name(0), Err(Refusal::TimedOut));
        assert_eq!(kept, Ok(target(1)));
        assert_eq!(scene.route(&name(0), b"x"), Route::To(target(1)));
        assert_eq!(scene.asked(), []);
        advance(NAME_LIFE).await;
        assert_eq!(scene.route(&name(0), b"x"), Route::To(target(1)));
        assert_eq!(scene.asked(), [name(0)]);
        let (renewed, _) = scene.names.found(name(0), Ok(target(2)));
        assert_eq!(renewed, Ok(target(2)));
        assert_eq!(scene.route(&name(0), b"x"), Route::To(target(2)));
        // A policy does.
        advance(NAME_LIFE).await;
        let _ = scene.names.found(name(0), Err(Refusal::TargetDenied));
        let refused = Route::Refused(Refusal::TargetDenied);
        assert_eq!(scene.route(&name(0), b"x"), refused);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_address_is_used_again_only_once_the_name_was_looked_up() {
        let mut scene = Scene::default();
        let _ = scene.names.found(name(0), Ok(target(1)));
        advance(2 * NAME_LIFE).await;
        assert_eq!(scene.route(&name(0), b"x"), Route::Waits);
        assert_eq!(scene.asked(), [name(0)]);
        let (kept, waited) = scene.names.found(name(0), Err(Refusal::UnknownName));
        assert_eq!(kept, Ok(target(1)));
        assert_eq!(bytes(&waited), [b"x"]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_name_than_there_is_room_for_replaces_the_one_unused_longest() {
        let mut scene = Scene::default();
        for number in 0..MAX_NAMES {
            let _ = scene.names.found(name(number), Ok(target(1)));
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(scene.route(&name(0), b"x"), Route::To(target(1)));
        let _ = scene.names.found(name(MAX_NAMES), Ok(target(1)));
        assert_eq!(scene.route(&name(1), b"x"), Route::Waits);
        for number in (0..=MAX_NAMES).filter(|it| *it != 1) {
            let route = scene.route(&name(number), b"x");
            assert_eq!(route, Route::To(target(1)), "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_a_second_and_within_the_same_bound() {
        let mut scene = Scene::default();
        for number in 0..1_000 {
            assert_eq!(scene.route(&name(number), b"x"), Route::Waits);
            let (_, waited) = scene.names.found(name(number), Err(Refusal::Forbidden));
            assert_eq!(bytes(&waited), [b"x"]);
            let refused = Route::Refused(Refusal::Forbidden);
            assert_eq!(scene.route(&name(number), b"y"), refused);
            assert!(scene.names.known.len() <= MAX_NAMES);
        }
        advance(RETRY).await;
        assert_eq!(scene.route(&name(999), b"z"), Route::Waits);
    }
}
