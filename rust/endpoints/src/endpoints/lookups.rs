//! When names are looked up.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use convoy_proto::config::PublicKey;

/// Most look-ups at once: of all names, and of one, if the network has changed meanwhile.
const AT_ONCE: usize = 16;
const AT_ONCE_OF_ONE: usize = 2;
/// Most addresses of a name that are used.
const ADDRESSES: usize = 16;
/// First pause between look-ups of a name that is not found, or whose peer does not answer; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between look-ups of one name.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// All names of all peers.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    names: BTreeMap<String, Name>,
}

#[derive(Debug)]
struct Name {
    /// Addresses of the last look-up that found any.
    addresses: Vec<IpAddr>,
    /// Whether there has been an answer, even if it was in vain.
    is_known: bool,
    problem: Option<String>,
    due: Due,
    /// Look-ups that await their answer.
    running: usize,
    last_asked: Option<Instant>,
    pause: Duration,
    /// Peers with this name.
    users: Vec<PublicKey>,
    /// Whether a server other than a peer has this name.
    is_server: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Now,
    At(Instant),
    Never,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            is_known: false,
            problem: None,
            due: Due::Now,
            running: 0,
            last_asked: None,
            pause: FIRST_PAUSE,
            users: Vec::new(),
            is_server: false,
        }
    }
}

impl Lookups {
    pub(super) fn add_user(&mut self, name: &str, peer: PublicKey) {
        let users = &mut self.names.entry(name.to_owned()).or_default().users;
        if users.last() != Some(&peer) {
            users.push(peer);
        }
    }

    pub(super) fn add_server(&mut self, name: &str) {
        self.names.entry(name.to_owned()).or_default().is_server = true;
    }

    pub(super) fn forget_users(&mut self) {
        for name in self.names.values_mut() {
            name.users.clear();
            name.is_server = false;
        }
    }

    pub(super) fn forget_unused(&mut self) {
        self.names
            .retain(|_, name| name.is_server || !name.users.is_empty());
    }

    /// Returns whether a look-up of a peer's name awaits its answer.
    pub(super) fn awaits_peers(&self) -> bool {
        let mut names = self.names.values();
        names.any(|name| name.running > 0 && !name.users.is_empty())
    }

    pub(super) fn users_of(&self, name: &str) -> &[PublicKey] {
        self.names.get(name).map_or(&[], |name| &name.users)
    }

    /// The addresses in order of preference; `None` before the first answer.
    pub(super) fn addresses_of(&self, name: &str) -> Option<&[IpAddr]> {
        let name = self.names.get(name).filter(|name| name.is_known)?;
        Some(&name.addresses)
    }

    pub(super) fn problem_of(&self, name: &str) -> Option<&str> {
        self.names.get(name)?.problem.as_deref()
    }

    /// Call when the peer at this name answers: there is no need to look it up again.
    pub(super) fn handle_success(&mut self, name: &str) {
        if let Some(name) = self.names.get_mut(name) {
            name.pause = FIRST_PAUSE;
            if let (Due::At(_), false) = (name.due, name.addresses.is_empty()) {
                name.due = Due::Never;
            }
        }
    }

    /// Call when the peer at this name does not answer: perhaps it has another address.
    pub(super) fn handle_failure(&mut self, name: &str, now: Instant) {
        if let Some(name) = self.names.get_mut(name)
            && (name.due, name.running) == (Due::Never, 0)
        {
            name.ask_later(name.last_asked.unwrap_or(now));
        }
    }

    pub(super) fn handle_network_changed(&mut self, now: Instant) {
        for name in self.names.values_mut() {
            name.pause = FIRST_PAUSE;
            name.due = Due::At(now);
        }
    }

    /// Looks up again at once all names that were not found.
    pub(super) fn retry(&mut self, now: Instant) {
        let failed = self.names.values_mut().filter(|it| it.problem.is_some());
        for name in failed {
            name.pause = FIRST_PAUSE;
            name.due = Due::At(now);
        }
    }

    /// Returns whether there are addresses in the answer.
    pub(super) fn handle_answer(
        &mut self,
        name: &str,
        answer: Result<Vec<IpAddr>, String>,
        now: Instant,
    ) -> bool {
        let text = name;
        let Some(name) = self.names.get_mut(name) else {
            return false;
        };
        name.running = name.running.saturating_sub(1);
        let found = answer.and_then(|found| match found.is_empty() {
            true => Err("no address".to_owned()),
            false => Ok(found),
        });
        match found {
            Ok(mut addresses) => {
                addresses.truncate(ADDRESSES);
                name.addresses = addresses;
                name.is_known = true;
                name.problem = None;
                return true;
            }
            // Another look-up, which began after the network had changed, may find it.
            Err(_) if name.running > 0 => {}
            Err(reason) => {
                name.is_known = true;
                name.problem = Some(format!("{reason}: {text}"));
                if name.due == Due::Never {
                    name.ask_later(now);
                }
            }
        }
        false
    }

    /// The next name that is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<String> {
        if self.is_busy() {
            return None;
        }
        let mut names = self.names.iter_mut().filter(|(_, it)| it.may_be_asked());
        let (text, name) = names.find(|(_, name)| match name.due {
            Due::Now => true,
            Due::At(at) => at <= now,
            Due::Never => false,
        })?;
        name.due = Due::Never;
        name.running += 1;
        name.last_asked = Some(now);
        Some(text.clone())
    }

    /// Returns when [`Self::poll`] may have a name that it did not have at the last call.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        let names = self.names.values().filter(|it| it.may_be_asked());
        names.filter_map(|name| name.due.at()).min()
    }

    fn is_busy(&self) -> bool {
        self.names.values().map(|name| name.running).sum::<usize>() >= AT_ONCE
    }
}

impl Name {
    fn may_be_asked(&self) -> bool {
        self.running < AT_ONCE_OF_ONE
    }

    fn ask_later(&mut self, than: Instant) {
        self.due = Due::At(than + self.pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

impl Due {
    fn at(self) -> Option<Instant> {
        match self {
            Self::At(at) => Some(at),
            // `poll` has been asked, or will be before anybody waits.
            Self::Now | Self::Never => None,
        }
    }
}
