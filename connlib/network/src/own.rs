//! The addresses of this host, as they change.

mod kernel;
mod known;

use std::{
    io,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};
use tracing::warn;

use convoy_types::Prefix;
use kernel::{Changes, Tables};
use known::Known;

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The addresses at which this host answers, or broadcasts to its links: those of its interfaces, and those of routes
/// that make a whole network local. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Own {
    known: Arc<RwLock<Known>>,
    /// Follows changes until the last clone is dropped.
    _following: Arc<JoinSet<()>>,
}

impl Own {
    /// Reads those of the calling thread's network namespace, and follows their changes from now on.
    ///
    /// A new address is known as soon as the runtime has read the kernel's notice of it.
    ///
    /// # Errors
    /// The errors of rtnetlink. Later ones are logged, and what was known last counts until it can be read again.
    pub async fn follow() -> io::Result<Self> {
        // Listening begins first, so that no change is missed.
        let changes = Changes::listen()?;
        let tables = Tables::open()?;
        let known = Arc::new(RwLock::new(tables.read().await?));
        let mut following = JoinSet::new();
        following.spawn(follow(changes, tables, Arc::clone(&known)));
        Ok(Self {
            known,
            _following: Arc::new(following),
        })
    }

    /// These addresses, which do not change.
    #[must_use]
    pub fn fixed(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let known = Known {
            addresses: addresses.into_iter().collect(),
            ..Known::default()
        };
        Self {
            known: Arc::new(RwLock::new(known)),
            _following: Arc::default(),
        }
    }

    /// The bits of the longest prefix of an address, which is not IPv4-mapped, that is this host's; all of them if the
    /// address itself is.
    pub(crate) fn bits_of(&self, address: IpAddr) -> Option<u8> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.addresses.contains(&address) {
            return Some(if address.is_ipv4() { 32 } else { 128 });
        }
        let networks = known.networks.iter();
        let containing = networks.filter(|network| network.holds(address));
        containing.map(Prefix::length).max()
    }

    /// Returns a number that grows when the addresses change.
    #[must_use]
    pub fn version(&self) -> u64 {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.version
    }
}

async fn follow(mut changes: Changes, tables: Tables, known: Arc<RwLock<Known>>) {
    loop {
        if let Err(error) = changes.next().await {
            warn!("cannot follow this host's addresses, and will try again: {error}");
            sleep(RETRY).await;
        }
        let read = read(&tables).await;
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        let is_same = known.addresses == read.addresses && known.networks == read.networks;
        let version = known.version + u64::from(!is_same);
        *known = Known { version, ..read };
    }
}

async fn read(tables: &Tables) -> Known {
    loop {
        match tables.read().await {
            Ok(read) => return read,
            Err(error) => {
                warn!("cannot read this host's addresses, and will try again: {error}");
                sleep(RETRY).await;
            }
        }
    }
}
