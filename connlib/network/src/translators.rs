//! The translators (NAT64) of this host's network, found by RFC 7050: its resolver is asked for the IPv6 addresses of a
//! name that has none but those that it makes up for such a translator.
//!
//! 1. [`Translators::discover`] begins to ask, when a target is about to be reached for which it matters.
//! 2. The flow waits briefly for the answer, once per network: a silent resolver does not delay flows again. Later
//!    questions do not delay flows at all.
//! 3. A [`Policy`](crate::policy::Policy) refuses an address in which a translator reads one that it would refuse.
//!
//! An answer can only have more targets refused, and only within the prefixes that it names.

mod prefixes;
mod resolver;

use std::{
    fmt, io,
    net::Ipv6Addr,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tracing::{debug, info};

use crate::{network::names::system::RESOLV_CONF, own::Own};
use convoy_types::{Prefix, Translated};

/// Time for which a flow waits for the first answer in a network.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Shortest time for which an answer counts.
const SHORTEST_LIFE: Duration = Duration::from_secs(60);
/// Longest time for which an answer counts.
const LONGEST_LIFE: Duration = Duration::from_secs(3_600);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// Most translators that are known.
const MAX_TRANSLATORS: usize = 8;

/// A wait for an answer, which has a limit.
pub type Discovery = Pin<Box<dyn Future<Output = ()> + Send>>;

type Asking = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

/// The prefixes of the translators in this host's network. Clones share them. Without a resolver there are none.
#[derive(Clone, Debug, Default)]
pub struct Translators(Option<Arc<Shared>>);

struct Shared {
    ask: Box<dyn Fn() -> Asking + Send + Sync>,
    network: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
    answers: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    known: Vec<Known>,
    /// The network in which the last question was asked.
    network: Option<u64>,
    is_asking: bool,
    /// End of the time for which flows wait.
    patience: Instant,
    /// Time of the next question.
    due: Instant,
}

#[derive(Debug)]
struct Known {
    prefix: Prefix,
    /// The prefix stays at least until then, whatever other servers of the same network answer.
    until: Instant,
}

/// A resolver's answer.
#[derive(Debug)]
struct Answer {
    addresses: Vec<Ipv6Addr>,
    life: Duration,
}

impl Translators {
    /// Asks this host's resolver, and asks again when the resolver's file or the host's addresses change.
    #[must_use]
    pub fn of_host(own: Own) -> Self {
        Self::of_file(RESOLV_CONF.into(), own)
    }

    /// Asks the servers of another file in the format of resolv.conf(5).
    #[must_use]
    pub fn of_file(resolver: PathBuf, own: Own) -> Self {
        let file = resolver.clone();
        let network = move || resolver::version(&file, &own);
        Self::with(move || Box::pin(resolver::ask(resolver.clone())), network)
    }

    fn with(
        ask: impl Fn() -> Asking + Send + Sync + 'static,
        network: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let now = Instant::now();
        Self(Some(Arc::new(Shared {
            ask: Box::new(ask),
            network: Box::new(network),
            state: Mutex::new(State {
                known: Vec::new(),
                network: None,
                is_asking: false,
                patience: now,
                due: now,
            }),
            answers: watch::Sender::new(()),
        })))
    }

    /// Asks the resolver if its last answer is too old, on the runtime of the caller; returns what to wait for before
    /// they are known.
    #[must_use]
    pub fn discover(&self) -> Option<Discovery> {
        let shared = self.0.as_ref()?;
        let network = (shared.network)();
        let mut state = shared.state();
        if state.begins(network, Instant::now()) {
            tokio::spawn(Arc::clone(shared).ask(network));
        }
        let patience = state.patience;
        if !state.is_asking || patience <= Instant::now() {
            return None;
        }
        let mut answers = shared.answers.subscribe();
        Some(Box::pin(async move {
            // Whatever the outcome, the flow goes on by what is known then.
            let _ = timeout_at(patience, answers.changed()).await;
        }))
    }

    /// Returns the IPv4 address that each known translator reads in an address. None translates what it reads for
    /// another: zeros.
    pub(crate) fn reads(&self, address: Ipv6Addr) -> [Option<Translated>; 6] {
        let mut found = [None; 6];
        let Some(shared) = &self.0 else {
            return found;
        };
        let state = shared.state();
        for (slot, read) in found.iter_mut().zip(Translated::all_in(address)) {
            let is_known = state
                .known
                .iter()
                .any(|it| it.prefix.length() == read.prefix && it.prefix.holds(address.into()));
            *slot = Some(read).filter(|it| is_known && it.address.octets()[0] != 0);
        }
        found
    }
}

impl Shared {
    /// Asks until the network is the one in which the question was asked.
    async fn ask(self: Arc<Self>, mut network: u64) {
        loop {
            let answer = timeout(LIMIT, (self.ask)()).await;
            let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let now_in = (self.network)();
            let mut state = self.state();
            state.note(answer, Instant::now());
            if now_in == network {
                break;
            }
            network = now_in;
            state.begins(network, Instant::now());
        }
        self.answers.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes note of a question, and returns true, if one is to be asked now.
    fn begins(&mut self, network: u64, now: Instant) -> bool {
        let is_new = self.network != Some(network);
        if self.is_asking || !is_new && now < self.due {
            return false;
        }
        self.is_asking = true;
        self.network = Some(network);
        if is_new {
            self.patience = now + PATIENCE;
        }
        true
    }

    fn note(&mut self, answer: io::Result<Answer>, now: Instant) {
        self.is_asking = false;
        let Answer { addresses, life } = match answer {
            Ok(answer) => answer,
            Err(error) => {
                debug!("cannot ask for this network's NAT64 translators: {error}");
                self.due = now + RETRY;
                return;
            }
        };
        let until = now + life.clamp(SHORTEST_LIFE, LONGEST_LIFE);
        self.due = until;
        let mut known: Vec<_> = prefixes::of(&addresses).collect();
        known.truncate(MAX_TRANSLATORS);
        for prefix in &known {
            if self.known.iter().all(|it| it.prefix != *prefix) {
                info!("this network has a NAT64 translator: {prefix}");
            }
        }
        self.known
            .retain(|it| it.until > now && !known.contains(&it.prefix));
        let known = known.into_iter().map(|prefix| Known { prefix, until });
        self.known.splice(..0, known);
        self.known.truncate(MAX_TRANSLATORS);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.state()).finish()
    }
}

#[cfg(test)]
mod tests;
