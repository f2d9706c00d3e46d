//! The targets of one association: the newest ones, and names that are being looked up.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    time::Duration,
};

use tokio::time::Instant;

use crate::{counters::Refusal, expiry::RETRY};

/// Targets that may answer; another one replaces the one that was silent longest.
const MAX_TARGETS: usize = 1024;
/// Names that are remembered.
const MAX_NAMES: usize = 64;
/// Time for which a name's address is remembered; a failure only for [`RETRY`].
const NAME_LIFE: Duration = Duration::from_secs(60);
/// Names that are looked up at once, and datagrams and bytes that wait for that.
const MAX_LOOKUPS: usize = 16;
const MAX_EARLY: usize = 64;
const MAX_EARLY_BYTES: usize = 256 << 10;

/// A host's name and a port.
pub(super) type Named = (String, u16);

/// Addresses in the order in which they were last used.
#[derive(Default)]
pub(super) struct Targets {
    used: HashMap<SocketAddr, u64>,
    oldest: BTreeMap<u64, SocketAddr>,
    serial: u64,
}

impl Targets {
    /// Records that a datagram goes to an address.
    pub(super) fn insert(&mut self, target: SocketAddr) {
        self.serial += 1;
        if let Some(before) = self.used.insert(target, self.serial) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.serial, target);
        if self.used.len() > MAX_TARGETS
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Records that a datagram came from an address; returns whether that may answer.
    pub(super) fn renew(&mut self, target: SocketAddr) -> bool {
        let is_known = self.used.contains_key(&target);
        if is_known {
            self.insert(target);
        }
        is_known
    }
}

/// Names whose addresses are known, or why none may be used, and datagrams for those that are being looked up.
#[derive(Default)]
pub(super) struct Names {
    known: HashMap<Named, (Result<SocketAddr, Refusal>, Instant)>,
    pending: HashMap<Named, Vec<Vec<u8>>>,
    early: usize,
    early_bytes: usize,
}

/// Destination of a datagram for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    To(SocketAddr),
    Refused(Refusal),
    /// It waits, and the name is to be looked up.
    LookUp,
    Waits,
    /// Too many wait.
    Dropped,
}

impl Names {
    /// Finds a name's address, or keeps the datagram until that is known.
    pub(super) fn route(&mut self, name: &Named, datagram: &[u8]) -> Route {
        if let Some((found, end)) = self.known.get(name)
            && Instant::now() < *end
        {
            return found.map_or_else(Route::Refused, Route::To);
        }
        let is_new = !self.pending.contains_key(name);
        let is_full =
            self.early >= MAX_EARLY || self.early_bytes + datagram.len() > MAX_EARLY_BYTES;
        if is_full || (is_new && self.pending.len() >= MAX_LOOKUPS) {
            return Route::Dropped;
        }
        self.early += 1;
        self.early_bytes += datagram.len();
        let waiting = self.pending.entry(name.clone()).or_default();
        waiting.push(datagram.to_owned());
        if is_new { Route::LookUp } else { Route::Waits }
    }

    /// Records the outcome of a look-up; returns the datagrams that have waited for it.
    pub(super) fn found(
        &mut self,
        name: Named,
        found: Result<SocketAddr, Refusal>,
    ) -> Vec<Vec<u8>> {
        let waiting = self.pending.remove(&name).unwrap_or_default();
        self.early -= waiting.len();
        self.early_bytes -= waiting.iter().map(Vec::len).sum::<usize>();
        if self.known.len() >= MAX_NAMES {
            self.known.clear();
        }
        let life = if found.is_ok() { NAME_LIFE } else { RETRY };
        self.known.insert(name, (found, Instant::now() + life));
        waiting
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn target(number: u16) -> SocketAddr {
        ([192, 0, 2, 1], number).into()
    }

    #[test]
    fn another_target_than_there_is_room_for_replaces_the_one_that_was_silent_longest() {
        let mut targets = Targets::default();
        for number in 1..=1024 {
            targets.insert(target(number));
        }
        assert!(targets.renew(target(1)));
        targets.insert(target(1025));
        assert!(targets.renew(target(1025)) && targets.renew(target(1)));
        assert!(!targets.renew(target(2)));
        assert_eq!((targets.used.len(), targets.oldest.len()), (1024, 1024));
    }

    #[test]
    fn what_waits_for_names_is_bounded_and_given_back() {
        let mut names = Names::default();
        let name = |number: usize| (format!("{number}.example"), 53);
        assert_eq!(names.route(&name(0), b"first"), Route::LookUp);
        assert_eq!(names.route(&name(0), b"second"), Route::Waits);
        for number in 1..MAX_LOOKUPS {
            assert_eq!(names.route(&name(number), b"x"), Route::LookUp);
        }
        assert_eq!(names.route(&name(MAX_LOOKUPS), b"x"), Route::Dropped);
        assert_eq!(names.route(&name(1), &[0; MAX_EARLY_BYTES]), Route::Dropped);
        let waited = names.found(name(0), Ok(target(7)));
        assert_eq!(waited, [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!(names.route(&name(0), b"third"), Route::To(target(7)));
        for number in 1..MAX_LOOKUPS {
            names.found(name(number), Err(Refusal::UnknownName));
        }
        assert_eq!(
            (names.early, names.early_bytes, names.pending.len()),
            (0, 0, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_a_second_and_within_the_same_bound() {
        let mut names = Names::default();
        let name = |number: usize| (format!("{number}.example"), 53);
        for number in 0..1_000 {
            assert_eq!(names.route(&name(number), b"x"), Route::LookUp);
            let waited = names.found(name(number), Err(Refusal::Forbidden));
            assert_eq!(waited, [b"x"]);
            let refused = Route::Refused(Refusal::Forbidden);
            assert_eq!(names.route(&name(number), b"y"), refused);
            assert!(names.known.len() <= MAX_NAMES);
        }
        advance(RETRY).await;
        assert_eq!(names.route(&name(999), b"z"), Route::LookUp);
    }
}
