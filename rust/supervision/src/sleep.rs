//! Detects that the machine has woken up.
//!
//! logind announces it (or elogind, which has the same interface). Without logind, the clocks show it: only the
//! boot-time clock advances while the machine sleeps. Nothing polls.

use std::{future::pending, time::Duration};

use convoy_daemon::wall_clock::Steps;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream, Fuse},
};
use nix::time::{ClockId, clock_gettime};
use tracing::debug;
use zbus::{Proxy, connection::Builder, proxy::SignalStream};

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";

/// Time limit for the bus's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shorter differences are inaccuracies of the clocks.
const LEAST_SLEEP: Duration = Duration::from_secs(1);

/// Reports that the machine has woken up.
pub(crate) struct Sleep {
    /// logind's signals; `None` without a bus.
    signals: Option<SignalStream<'static>>,
    clocks: Clocks,
}

/// Clocks that reveal sleep.
struct Clocks {
    asleep: Asleep,
    /// Receiver of readings taken when the machine may have woken up.
    readings: Fuse<BoxStream<'static, Asleep>>,
}

/// Total time that the machine has slept since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep(Duration);

impl Sleep {
    /// Listens to the system bus, if there is one, and to the clocks.
    pub(crate) async fn new() -> Self {
        Self::with(None, Clocks::watch()).await
    }

    /// Listens to the bus at `address` instead of the system bus.
    async fn with(address: Option<&str>, clocks: Clocks) -> Self {
        let signals = tokio::time::timeout(PATIENCE, signals(address)).await;
        let signals = match signals {
            Ok(Ok(signals)) => Some(signals),
            Ok(Err(error)) => {
                debug!("cannot listen to logind: {error}");
                None
            }
            Err(_) => {
                debug!("cannot listen to logind: the system bus does not answer");
                None
            }
        };
        Self { signals, clocks }
    }

    /// Waits until the machine has woken up. Reports it twice if both logind and the clocks do. Cancel-safe.
    pub(crate) async fn resumed(&mut self) {
        loop {
            let Self { signals, clocks } = self;
            tokio::select! {
                woken = next_signal(signals) => if woken {
                    return;
                },
                () = clocks.slept() => return,
            }
        }
    }
}

async fn signals(address: Option<&str>) -> zbus::Result<SignalStream<'static>> {
    let builder = match address {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    };
    let connection = builder.method_timeout(PATIENCE).build().await?;
    let manager = Proxy::new(&connection, NAME, PATH, MANAGER).await?;
    manager.receive_signal("PrepareForSleep").await
}

/// Returns whether the next signal says that the machine has woken up, rather than that it will go to sleep.
async fn next_signal(signals: &mut Option<SignalStream<'static>>) -> bool {
    let Some(stream) = signals else {
        return pending().await;
    };
    match stream.next().await {
        Some(message) => message
            .body()
            .deserialize::<bool>()
            .is_ok_and(|begins| !begins),
        None => {
            debug!("the system bus is gone");
            *signals = None;
            false
        }
    }
}

impl Clocks {
    /// Reads the clocks whenever the wall clock jumps, as it does when the machine wakes up.
    fn watch() -> Self {
        let steps = Steps::watch();
        let steps = steps.inspect_err(|error| debug!("cannot watch the clocks: {error}"));
        let readings = stream::unfold(steps.ok(), async |steps| {
            let steps = steps?;
            match steps.next().await {
                Ok(()) => Some((Asleep::now(), Some(steps))),
                Err(error) => {
                    debug!("cannot watch the clocks any longer: {error}");
                    None
                }
            }
        });
        Self::new(Asleep::now(), readings.boxed())
    }

    fn new(asleep: Asleep, readings: BoxStream<'static, Asleep>) -> Self {
        let readings = readings.fuse();
        Self { asleep, readings }
    }

    /// Waits for a reading that shows that the machine has slept. Cancel-safe.
    async fn slept(&mut self) {
        while let Some(now) = self.readings.next().await {
            if self.asleep.has_grown(now) {
                return;
            }
        }
        pending().await
    }
}

impl Asleep {
    fn now() -> Self {
        // INVARIANT: every Linux since 2.6.39 has these clocks.
        let [all, awake] = [ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_MONOTONIC]
            .map(|clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from));
        Self(all.saturating_sub(awake))
    }

    /// Compares with the last reading; returns whether the machine has slept since.
    fn has_grown(&mut self, now: Self) -> bool {
        let grown = now.0.saturating_sub(self.0);
        *self = now;
        grown >= LEAST_SLEEP
    }
}

#[cfg(test)]
mod tests {
    use convoy_lab::{Bus, require_programs};
    use tokio::sync::mpsc;
    use zbus::Connection;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);
    const NO_BUS: &str = "unix:path=/nonexistent/convoy/bus";

    #[test]
    fn time_that_only_the_boot_clock_counts_was_slept_away() {
        let mut asleep = Asleep(Duration::from_secs(3600));
        for (now, has_slept) in [
            (3_600_000, false),
            (3_600_300, false),
            (3_602_000, true),
            (3_602_000, false),
        ] {
            let now = Asleep(Duration::from_millis(now));
            assert_eq!(asleep.has_grown(now), has_slept, "{now:?}");
        }
        assert!(!Asleep::now().has_grown(Asleep::now()));
    }

    #[test]
    fn without_a_bus_it_waits_for_ever() {
        on_runtime(async {
            let mut sleep = Sleep::with(Some(NO_BUS), Clocks::watch()).await;
            assert!(sleep.signals.is_none());
            assert!(!is_reported(&mut sleep).await);
        });
    }

    #[test]
    fn without_a_bus_a_jump_of_the_boot_clock_reports_each_end_of_sleep() {
        on_runtime(async {
            let (readings, queue) = mpsc::channel(1);
            let queue = stream::unfold(queue, async |mut queue: mpsc::Receiver<_>| {
                Some((queue.recv().await?, queue))
            });
            let clocks = Clocks::new(asleep(3_600), queue.boxed());
            let mut sleep = Sleep::with(Some(NO_BUS), clocks).await;
            for (now, has_slept) in [
                // The wall clock was set.
                (3_600, false),
                (3_660, true),
                (3_660, false),
                (90_000, true),
            ] {
                readings.send(asleep(now)).await.unwrap();
                assert_eq!(is_reported(&mut sleep).await, has_slept, "{now}");
            }
            // It cannot watch them any longer.
            drop(readings);
            assert!(!is_reported(&mut sleep).await);
        });
    }

    #[test]
    fn logind_reports_the_end_of_sleep_even_if_it_starts_later() {
        let test = "logind_reports_the_end_of_sleep_even_if_it_starts_later";
        if !require_programs(test, &["dbus-daemon"]) {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let bus = Bus::start(&directory.path().join("bus")).unwrap();
        on_runtime(async {
            let mut sleep = Sleep::with(Some(bus.address()), Clocks::watch()).await;
            assert!(sleep.signals.is_some());
            let logind = Builder::address(bus.address()).name(NAME);
            let logind = logind.build().await.unwrap();
            announce(&logind, true).await;
            assert!(!is_reported(&mut sleep).await);
            announce(&logind, false).await;
            tokio::time::timeout(DEADLINE, sleep.resumed())
                .await
                .expect("it is reported");
        });
    }

    fn asleep(seconds: u64) -> Asleep {
        Asleep(Duration::from_secs(seconds))
    }

    async fn is_reported(sleep: &mut Sleep) -> bool {
        let resumed = tokio::time::timeout(Duration::from_millis(50), sleep.resumed());
        resumed.await.is_ok()
    }

    async fn announce(logind: &Connection, begins: bool) {
        let sent = logind.emit_signal(None::<&str>, PATH, MANAGER, "PrepareForSleep", &begins);
        sent.await.unwrap();
    }

    fn on_runtime(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(future);
    }
}
