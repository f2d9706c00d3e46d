//! The time since boot, including suspend (`CLOCK_BOOTTIME`), and an alarm by that clock (Linux).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::{
    sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    time::clock_gettime,
};
use tokio::io::{Interest, unix::AsyncFd};

/// The time since boot.
pub(crate) fn now() -> Duration {
    // INVARIANT: every Linux since 2.6.39 has this clock.
    clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// The CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    // INVARIANT: every Linux since 2.6.12 has this clock.
    clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// The wall-clock time of boot, when [`now`] was zero, as the time since the Unix epoch.
pub(crate) fn wall_clock_of_boot() -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.unwrap_or_default().saturating_sub(now())
}

/// An alarm that one task can wait for.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<Fd>,
    armed: Option<Duration>,
}

#[derive(Debug)]
struct Fd(TimerFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let timer = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        // SAFETY: `Fd` owns the descriptor, keeps it open until it is dropped, and returns no other.
        let timer = unsafe { AsyncFd::register_with_interest(Fd(timer), Interest::READABLE) };
        let (timer, armed) = (timer?, None);
        Ok(Self { timer, armed })
    }

    /// Sets the alarm for `at`, unless it is already set for an earlier time. Then the caller sets it again
    /// after that.
    pub(crate) fn arm(&mut self, at: Duration) {
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        // Zero would disarm the timer.
        let at = at.max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(at));
        let timer = &self.timer.get_ref().0;
        match timer.set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME) {
            Ok(()) => self.armed = Some(at),
            Err(error) => tracing::error!(%error, "Cannot set the timer"),
        }
    }

    /// Waits until the alarm goes off; forever while it is not set. Cancel-safe.
    pub(crate) async fn rings(&mut self) {
        match self.timer.readable().await {
            Ok(mut guard) => {
                let _ = guard.try_io(|fd| match fd.get_ref().0.wait() {
                    Err(nix::errno::Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                });
                guard.clear_ready();
            }
            Err(error) => tracing::error!(%error, "Cannot wait for the timer"),
        }
        self.armed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_rings_at_its_time_and_an_earlier_one_is_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new().unwrap();
            let at = now() + Duration::from_millis(30);
            alarm.arm(at);
            alarm.arm(at + Duration::from_secs(3600));
            alarm.rings().await;
            assert!((at..at + Duration::from_secs(60)).contains(&now()));
            alarm.arm(now());
            alarm.rings().await;
        });
    }
}
