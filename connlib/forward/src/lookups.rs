//! Divides the threads that look names up among rules and their clients.
//!
//! A look-up that takes a thread keeps it until the system's resolver answers or gives up, which may take long after
//! everyone has left: until then it counts.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use convoy_network::{
    Answer, Datagrams, Listener, Network, Stream, counters::Refusal, occupants::Holder,
    translators::Discovery,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Look-ups that take threads, of all rules: a program should have as many threads for them.
pub const MOST_LOOKUPS: usize = 64;
/// Look-ups of one rule that take threads.
const MOST_OF_RULE: usize = MOST_LOOKUPS / 2;
/// Look-ups of one client that take threads; further ones wait.
const MOST_OF_CLIENT: usize = MOST_LOOKUPS / 4;

/// The look-ups of all rules. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Lookups(Arc<State>);

#[derive(Debug)]
struct State {
    all: Arc<Semaphore>,
    rules: Mutex<HashMap<u32, Arc<Semaphore>>>,
    /// Only those that look names up or wait for that. A map of std, as others may choose its keys.
    clients: Mutex<HashMap<Holder, Client>>,
}

#[derive(Debug)]
struct Client {
    turns: Arc<Semaphore>,
    lookups: usize,
}

/// A look-up that may begin; its place is given back when this is dropped.
struct Turn {
    // Given back before the client is forgotten.
    _permits: [Option<OwnedSemaphorePermit>; 3],
    _asking: Asking,
}

/// A look-up that has begun or waits for its turn.
struct Asking {
    lookups: Lookups,
    client: Holder,
}

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(State {
            all: Arc::new(Semaphore::new(MOST_LOOKUPS)),
            rules: Mutex::default(),
            clients: Mutex::default(),
        }))
    }
}

impl Lookups {
    /// Waits for a client's turn: those of a client, of a rule and of all are served in their order.
    async fn turn(&self, client: Holder) -> Turn {
        let of_client = self.enter(client);
        let asking = Asking {
            lookups: self.clone(),
            client,
        };
        // In this order, so that whoever has much waits only for itself.
        let of_client = of_client.acquire_owned().await.ok();
        let of_rule = self.of_rule(client.group).acquire_owned().await.ok();
        let of_all = Arc::clone(&self.0.all).acquire_owned().await.ok();
        Turn {
            _permits: [of_client, of_rule, of_all],
            _asking: asking,
        }
    }

    fn enter(&self, client: Holder) -> Arc<Semaphore> {
        let mut clients = self.clients();
        let client = clients.entry(client).or_insert_with(|| Client {
            turns: Arc::new(Semaphore::new(MOST_OF_CLIENT)),
            lookups: 0,
        });
        client.lookups += 1;
        Arc::clone(&client.turns)
    }

    fn of_rule(&self, rule: u32) -> Arc<Semaphore> {
        let mut rules = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = rules
            .entry(rule)
            .or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_RULE)));
        Arc::clone(turns)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Holder, Client>> {
        let clients = self.0.clients.lock();
        clients.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.lookups.clients().entry(self.client) {
            match entry.get().lookups {
                1 => drop(entry.remove()),
                lookups => entry.get_mut().lookups = lookups - 1,
            }
        }
    }
}

/// A network as one client uses it: its look-ups wait for their turn if they take threads.
#[derive(Debug)]
pub(crate) struct OfClient<'a> {
    pub(crate) network: &'a Arc<dyn Network>,
    pub(crate) lookups: &'a Lookups,
    pub(crate) client: Holder,
}

impl Network for OfClient<'_> {
    fn check(&self, to: SocketAddr) -> Result<(), Refusal> {
        self.network.check(to)
    }

    fn discover(&self, to: SocketAddr) -> Option<Discovery> {
        self.network.discover(to)
    }

    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        if !self.network.takes_threads() {
            return self.network.resolve(name, port);
        }
        Box::pin(async move {
            let turn = self.lookups.turn(self.client).await;
            let (network, name) = (Arc::clone(self.network), name.to_owned());
            // It goes on, and keeps its place, although nobody waits for it any more.
            let lookup = tokio::spawn(async move {
                let found = network.resolve(&name, port).await;
                drop(turn);
                found
            });
            lookup.await.map_err(io::Error::other)?
        })
    }

    fn takes_threads(&self) -> bool {
        self.network.takes_threads()
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        self.network.connect(to)
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        self.network.listen(at)
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.datagrams(at)
    }

    fn listening_datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.listening_datagrams(at)
    }

    fn datagrams_beside(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.datagrams_beside(at)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::FutureExt;
    use tokio::{sync::Notify, task::yield_now};

    use super::*;

    fn client(rule: u32, number: u32) -> Holder {
        Holder::new(rule, Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn nobody_takes_all_turns_and_those_that_are_given_back_are_taken_in_order() {
        let lookups = Lookups::default();
        let take = |rule, number| lookups.turn(client(rule, number)).now_or_never();
        let take_all = |rule, number| -> Vec<_> {
            (0..=MOST_LOOKUPS)
                .map_while(|_| take(rule, number))
                .collect()
        };
        let mut greedy = take_all(0, 1);
        assert_eq!(greedy.len(), MOST_OF_CLIENT);
        let of_rule: Vec<_> = (2..100).flat_map(|number| take_all(0, number)).collect();
        assert_eq!(greedy.len() + of_rule.len(), MOST_OF_RULE);
        let others: Vec<_> = (1..100).flat_map(|rule| take_all(rule, 1)).collect();
        assert_eq!(others.len(), MOST_LOOKUPS - MOST_OF_RULE);
        let mut next = Box::pin(lookups.turn(client(0, 1)));
        assert!((&mut next).now_or_never().is_none());
        // One that waits, and leaves.
        let _ = take(0, 1);
        greedy.pop();
        assert!(take(0, 1).is_none());
        greedy.extend(next.now_or_never());
        assert_eq!(greedy.len(), MOST_OF_CLIENT);
        drop((greedy, of_rule, others));
        assert!(lookups.clients().is_empty());
        assert_eq!(lookups.0.all.available_permits(), MOST_LOOKUPS);
    }

    /// A network that answers look-ups only when told to.
    #[derive(Debug, Default)]
    struct Slow {
        answers: Notify,
        started: AtomicUsize,
    }

    impl Network for Slow {
        fn takes_threads(&self) -> bool {
            true
        }

        fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
            self.started.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                self.answers.notified().await;
                Ok(Vec::new())
            })
        }

        fn connect(&self, _: SocketAddr) -> Answer<'_, Stream> {
            Box::pin(std::future::pending())
        }

        fn listen(&self, _: SocketAddr) -> Answer<'_, Listener> {
            Box::pin(std::future::pending())
        }

        fn datagrams(&self, _: SocketAddr) -> Answer<'_, Datagrams> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_look_up_that_nobody_waits_for_any_more_counts_until_it_ends() {
        let slow = Arc::new(Slow::default());
        let network: Arc<dyn Network> = Arc::clone(&slow) as _;
        let lookups = Lookups::default();
        let far = OfClient {
            network: &network,
            lookups: &lookups,
            client: client(0, 1),
        };
        for _ in 0..2 * MOST_OF_CLIENT {
            // Begun, and given up.
            let begun = far.resolve("slow.example", 80).now_or_never();
            assert!(begun.is_none());
            yield_now().await;
        }
        let started = || slow.started.load(Ordering::Relaxed);
        assert_eq!(started(), MOST_OF_CLIENT);
        let mut next = far.resolve("slow.example", 80);
        assert!((&mut next).now_or_never().is_none());
        slow.answers.notify_one();
        let answered = async {
            while started() == MOST_OF_CLIENT {
                assert!((&mut next).now_or_never().is_none());
                yield_now().await;
            }
            slow.answers.notify_waiters();
            next.await
        };
        assert!(answered.await.unwrap().is_empty());
    }
}
