//! When the machine has woken up.
//!
//! logind announces it (or elogind, which has the same interface). Without it the clocks tell: only the boot time
//! goes on while the machine sleeps. Nothing polls.

use std::{future::pending, time::Duration};

use futures_util::StreamExt as _;
use nix::time::{ClockId, clock_gettime};
use tracing::debug;
use zbus::{Proxy, connection::Builder, proxy::SignalStream};

use crate::wall_clock::Steps;

const NAME: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";

/// How long the bus may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shorter sleep is the clocks' inaccuracy.
const LEAST_SLEEP: Duration = Duration::from_secs(1);

/// Reports that the machine has woken up.
pub(crate) struct Sleep {
    /// logind's signals; `None` without a bus.
    signals: Option<SignalStream<'static>>,
    /// `None` if the clocks cannot be watched.
    steps: Option<Steps>,
    asleep: Asleep,
}

/// The time that the machine has slept since it was booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep(Duration);

impl Sleep {
    /// Listens to the system bus, if there is one, and to the clocks.
    pub(crate) async fn new() -> Self {
        Self::on_bus(None).await
    }

    /// `address` replaces the system bus's.
    async fn on_bus(address: Option<&str>) -> Self {
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
        let steps = Steps::watch();
        let steps = steps.inspect_err(|error| debug!("cannot watch the clocks: {error}"));
        Self {
            signals,
            steps: steps.ok(),
            asleep: Asleep::now(),
        }
    }

    /// Waits until the machine has woken up. Reports it twice if both logind and the clocks tell. Cancel-safe.
    pub(crate) async fn resumed(&mut self) {
        loop {
            let Self { signals, steps, .. } = self;
            tokio::select! {
                woken = next_signal(signals) => if woken {
                    return;
                },
                () = next_step(steps) => if self.asleep.has_grown(Asleep::now()) {
                    return;
                },
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

/// Whether the next signal says that the machine has woken up, rather than that it will go to sleep.
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

async fn next_step(steps: &mut Option<Steps>) {
    let Some(watched) = steps else {
        return pending().await;
    };
    if let Err(error) = watched.next().await {
        debug!("cannot watch the clocks any longer: {error}");
        *steps = None;
    }
}

impl Asleep {
    fn now() -> Self {
        // INVARIANT: every Linux since 2.6.39 has these clocks.
        let [all, awake] = [ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_MONOTONIC]
            .map(|clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from));
        Self(all.saturating_sub(awake))
    }

    /// Takes the time until now; returns whether the machine has slept since the last.
    fn has_grown(&mut self, now: Self) -> bool {
        let grown = now.0.saturating_sub(self.0);
        *self = now;
        grown >= LEAST_SLEEP
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        process::{Child, Command, Stdio},
    };

    use convoy_lab::{eventually, require_programs};
    use zbus::Connection;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

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
            let mut sleep = Sleep::on_bus(Some("unix:path=/nonexistent/convoy/bus")).await;
            assert!(sleep.signals.is_none());
            let resumed = tokio::time::timeout(Duration::from_millis(50), sleep.resumed());
            assert!(resumed.await.is_err());
        });
    }

    #[test]
    fn logind_reports_the_end_of_sleep_even_if_it_starts_later() {
        let test = "logind_reports_the_end_of_sleep_even_if_it_starts_later";
        if !require_programs(test, &["dbus-daemon"]) {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        let _bus = Bus::start(&address);
        eventually(DEADLINE, || socket.exists().then_some(())).unwrap();
        on_runtime(async {
            let mut sleep = Sleep::on_bus(Some(&address)).await;
            assert!(sleep.signals.is_some());
            let logind = Builder::address(address.as_str()).name(NAME);
            let logind = logind.build().await.unwrap();
            let mut resumed = pin!(sleep.resumed());
            announce(&logind, true).await;
            let early = tokio::time::timeout(Duration::from_millis(100), &mut resumed);
            assert!(early.await.is_err());
            announce(&logind, false).await;
            tokio::time::timeout(DEADLINE, resumed)
                .await
                .expect("it is reported");
        });
    }

    async fn announce(logind: &Connection, begins: bool) {
        let sent = logind.emit_signal(None::<&str>, PATH, MANAGER, "PrepareForSleep", &begins);
        sent.await.unwrap();
    }

    struct Bus(Child);

    impl Bus {
        fn start(address: &str) -> Self {
            let mut command = Command::new("dbus-daemon");
            let command = command.args(["--session", "--nofork", "--nopidfile"]);
            let command = command.arg(format!("--address={address}"));
            Self(command.stderr(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Bus {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn on_runtime(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(future);
    }
}
