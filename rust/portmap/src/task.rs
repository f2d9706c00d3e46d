//! A mapping that is kept: asked for, renewed, and asked for again elsewhere.

use std::{pin::Pin, time::Duration};

use nix::time::{ClockId, clock_gettime};
use rand::{TryRng as _, rngs::SysRng};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::debug;

use crate::{
    LIFETIME,
    ask::{Memory, ask, withdraw},
    gateway::{Gateway, find},
    ledger::{Entry, Ledger, State},
    mapping::{Mapping, Target},
    problem::Problem,
};

/// Time until a router that grants nothing is asked again.
const PAUSE: Duration = Duration::from_secs(300);
/// Time until a router that does not renew a mapping is asked again.
const SHORT_PAUSE: Duration = Duration::from_secs(30);
/// Shortest lifetime that is believed: routers are not asked more often than twice in this time.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(60);

/// Keeps a port mapped. Dropping it withdraws nothing.
#[derive(Debug)]
pub struct PortMapping {
    target: watch::Sender<Target>,
    entry: watch::Receiver<Entry>,
    task: JoinHandle<()>,
}

impl PortMapping {
    /// Begins to ask for a mapping; `former` is one of the same port that may still be there.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    #[must_use]
    pub fn begin(target: Target, former: Option<&Mapping>) -> Self {
        let (target, wanted) = watch::channel(target);
        let (ledger, entry) = Ledger::new(former.cloned());
        let memory = former.map(|mapping| Memory {
            nonce: mapping.nonce,
            external: Some(mapping.external),
            protocol: Some(mapping.protocol),
        });
        let task = tokio::spawn(keep(wanted, ledger, memory, || Box::pin(find())));
        Self {
            target,
            entry,
            task,
        }
    }

    /// Asks at once, as the network or the mark may have changed. If no router answers, no port counts as mapped.
    pub fn ask_again(&self, target: Target) {
        self.target.send_replace(target);
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> Target {
        *self.target.borrow()
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> State {
        self.entry.borrow().state.clone()
    }

    /// Returns the mapping to withdraw at the end: one that the router has granted, or may have granted for good although
    /// it has not answered.
    #[must_use]
    pub fn noted(&self) -> Option<Mapping> {
        self.entry.borrow().noted.clone()
    }

    /// Waits until the state or the note is another than the one that was last waited for. May be cancelled.
    pub async fn changed(&mut self) {
        if self.entry.changed().await.is_err() {
            // The task goes on until this is dropped.
            std::future::pending().await
        }
    }
}

impl Drop for PortMapping {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks up the router.
type Find = fn() -> Pin<Box<dyn Future<Output = Result<Gateway, Problem>> + Send>>;

async fn keep(
    mut wanted: watch::Receiver<Target>,
    ledger: Ledger,
    mut memory: Option<Memory>,
    find: Find,
) {
    let mut kept: Option<Kept> = None;
    loop {
        let target = *wanted.borrow_and_update();
        let outcome = tokio::select! {
            outcome = attempt(target, &mut memory, &ledger, find) => outcome,
            // It stays until the router is gone, which leaves it behind.
            Ok(()) = wanted.changed() => {
                kept = None;
                continue;
            }
        };
        let (now, up) = (Instant::now(), since_boot());
        let external = outcome.as_ref().map(|(mapping, _)| mapping.external);
        debug!(?external, "Asked the router to forward a port");
        let next = match outcome {
            Ok((mapping, lifetime)) => {
                let lifetime = lifetime.clamp(SHORTEST_LIFETIME, LIFETIME);
                let until = up + lifetime;
                if let Some(replaced) = ledger.mapped(&mapping) {
                    tokio::spawn(async move { withdraw(&replaced).await });
                }
                kept = Some(Kept { mapping, until });
                now + lifetime / 2
            }
            Err((gateway, problem)) => match &kept {
                Some(kept) if kept.outlives(&gateway, &problem, up) => {
                    now + SHORT_PAUSE.min(kept.until - up)
                }
                _ => {
                    kept = None;
                    ledger.failed(problem);
                    now + PAUSE
                }
            },
        };
        tokio::select! {
            () = sleep_until(next) => {}
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                // Another network's router may have the same address.
                kept = None;
            }
        }
    }
}

/// Returns the time since boot, including suspend: the router's clock goes on.
fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// A mapping that the router still has.
struct Kept {
    mapping: Mapping,
    /// The end of its lifetime, as time since boot.
    until: Duration,
}

impl Kept {
    /// Returns whether the mapping is still of use although it was not renewed: an answer was lost, or this machine
    /// could not ask for a moment.
    fn outlives(&self, gateway: &Option<Gateway>, problem: &Problem, up: Duration) -> bool {
        let Mapping {
            router, interface, ..
        } = &self.mapping;
        let is_there = gateway
            .as_ref()
            .is_some_and(|it| (it.address, &it.interface) == (*router, interface));
        let is_unanswered = matches!(problem, Problem::Silent(_) | Problem::System(_));
        is_there && is_unanswered && up < self.until
    }
}

/// Asks once.
async fn attempt(
    target: Target,
    memory: &mut Option<Memory>,
    ledger: &Ledger,
    find: Find,
) -> Result<(Mapping, Duration), (Option<Gateway>, Problem)> {
    let known = match *memory {
        Some(memory) => memory,
        None => new_memory().map_err(|problem| (None, problem))?,
    };
    // The same secret for each attempt: the answer to a former one may have been lost.
    *memory = Some(known);
    let gateway = find().await.map_err(|problem| (None, problem))?;
    match ask(&gateway, target, known, ledger).await {
        Ok((mapping, lifetime)) => {
            *memory = Some(Memory {
                external: Some(mapping.external),
                protocol: Some(mapping.protocol),
                ..known
            });
            Ok((mapping, lifetime))
        }
        Err(problem) => Err((Some(gateway), problem)),
    }
}

fn new_memory() -> Result<Memory, Problem> {
    let mut nonce = [0; 12];
    let filled = SysRng.try_fill_bytes(&mut nonce);
    filled.map_err(|_| Problem::System("the system has no random bytes".to_owned()))?;
    Ok(Memory {
        nonce,
        external: None,
        protocol: None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::{net::UdpSocket, time::timeout};

    use super::*;
    use crate::{Protocol, exchange::PORT};

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    #[tokio::test]
    async fn a_mapping_outlives_whatever_leaves_open_whether_the_router_still_has_it() {
        let now = since_boot();
        let mapping = Mapping {
            protocol: Protocol::Pcp,
            router: ROUTER,
            interface: "eth0".to_owned(),
            mark: None,
            port: 51820,
            external: "198.51.100.7:51820".parse().unwrap(),
            nonce: [7; 12],
            control: None,
        };
        let until = now + Duration::from_secs(300);
        let kept = Kept { mapping, until };
        let at = |address: [u8; 4]| {
            let interface = "eth0".to_owned();
            let address = address.into();
            Some(Gateway { address, interface })
        };
        let refused = Problem::Refused {
            router: ROUTER,
            protocol: Protocol::Pcp,
            reason: "it is not allowed",
        };
        let here = at([192, 168, 0, 1]);
        let by_wifi = here.clone().map(|it| Gateway {
            interface: "wlan0".to_owned(),
            ..it
        });
        let silent = Problem::Silent(ROUTER);
        let system = Problem::System("Network is down".to_owned());
        for (gateway, problem, at, outlives) in [
            (&here, &silent, now, true),
            (&here, &system, now, true),
            (&here, &silent, until, false),
            (&here, &system, until, false),
            (&here, &refused, now, false),
            (&here, &Problem::NoAddress(ROUTER), now, false),
            (&at([192, 168, 1, 1]), &silent, now, false),
            (&by_wifi, &silent, now, false),
            (&None, &Problem::NoGateway, now, false),
        ] {
            assert_eq!(kept.outlives(gateway, problem, at), outlives, "{problem}");
        }
    }

    #[tokio::test]
    async fn a_mapping_of_the_former_network_does_not_outlive_it_where_nobody_answers() {
        const ROUTER: Ipv4Addr = Ipv4Addr::new(127, 53, 59, 1);
        let (target, wanted) = watch::channel(Target {
            port: 51820,
            mark: None,
        });
        let (ledger, mut seen) = Ledger::new(None);
        let find: Find = || {
            let (address, interface) = (ROUTER, String::new());
            Box::pin(async move { Ok(Gateway { address, interface }) })
        };
        let router = UdpSocket::bind((ROUTER, PORT)).await.unwrap();
        let task = tokio::spawn(keep(wanted, ledger, None, find));
        let mut request = [0; 100];
        let (length, from) = router.recv_from(&mut request).await.unwrap();
        // Granted for ten minutes (RFC 6887 section 11.1).
        request[1] |= 0x80;
        request[2..8].copy_from_slice(&[0, 0, 0, 0, 2, 0x58]);
        request[8..24].fill(0);
        request[44..60].copy_from_slice(&Ipv4Addr::new(198, 51, 100, 7).to_ipv6_mapped().octets());
        router.send_to(&request[..length], from).await.unwrap();
        let is_mapped = |entry: &Entry| matches!(entry.state, State::Mapped(_));
        let patience = Duration::from_secs(30);
        let mapped = timeout(patience, seen.wait_for(is_mapped)).await;
        mapped.unwrap().unwrap();
        // The router of another network has the same address, and no such port.
        drop(router);
        target.send_modify(|_| {});
        let is_failed = |entry: &Entry| matches!(entry.state, State::Failed(_));
        let failed = timeout(patience, seen.wait_for(is_failed)).await;
        failed.unwrap().unwrap();
        task.abort();
    }
}
