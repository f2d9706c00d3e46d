//! A pause, until a time that comes even if the machine sleeps.

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

use crate::firewall::Opening;

/// A pause that has begun.
#[derive(Debug)]
pub(crate) struct Pause {
    opening: Opening,
    /// On the clock that goes on during sleep.
    end: Duration,
    timer: AsyncFd<Fd>,
}

impl Pause {
    /// Begins one.
    pub(crate) fn begin(duration: Duration) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        let end = now()? + duration;
        timer.set(
            Expiration::OneShot(TimeSpec::from_duration(end)),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        )?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let until = wall.unwrap_or_default() + duration;
        // SAFETY: `Fd` owns the descriptor, keeps it open until dropped, and never returns another.
        let timer = unsafe { AsyncFd::register_with_interest(Fd(timer), Interest::READABLE) }?;
        // Rounded up: this process ends it in time if it lives.
        let up = Duration::from_millis(999);
        Ok(Self {
            opening: Opening {
                seconds: (duration + up).as_secs(),
                until: (until + up).as_secs(),
            },
            end,
            timer,
        })
    }

    /// Returns how the kernel ends it by itself.
    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// Returns whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        now().is_ok_and(|now| now >= self.end)
    }

    /// Waits until it is over. May be cancelled.
    pub(crate) async fn over(&self) {
        while !self.is_over() {
            match self.timer.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}

/// The time since boot, including suspend.
fn now() -> io::Result<Duration> {
    Ok(clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?.into())
}

#[derive(Debug)]
struct Fd(TimerFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_is_over_after_its_time_and_not_before() {
        let pause = Pause::begin(Duration::from_millis(20)).unwrap();
        assert!(pause.opening().seconds == 1 && !pause.is_over());
        pause.over().await;
        assert!(pause.is_over());
        pause.over().await;
    }
}
