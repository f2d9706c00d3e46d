//! Watches for steps of the wall clock: handshakes carry its time, and peers remember the latest
//! they have seen.
//!
//! A machine without a battery-backed clock boots in the past. Until its clock is set, peers that knew it
//! before take its handshakes for replays. Once it is set, they must accept its handshakes.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use convoy_tunnel::Tunnel;
use nix::{
    errno::Errno,
    sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    time::clock_gettime,
};
use tokio::io::{Interest, unix::AsyncFd};
use tracing::{info, warn};

/// Ignore shorter steps: no machine is switched off for so short a time.
const LEAST_STEP: Duration = Duration::from_secs(1);

/// Effectively never (the year 2242): the timer exists only so that a step cancels it.
const NEVER: Duration = Duration::from_secs(1 << 33);

/// Notifies the tunnel of every forward step of the wall clock; returns if it cannot watch for steps.
pub(crate) async fn follow(tunnel: &Tunnel) {
    if let Err(error) = watch(tunnel).await {
        warn!("cannot watch for steps of the wall clock: {error}");
    }
}

async fn watch(tunnel: &Tunnel) -> std::io::Result<()> {
    let steps = Steps::watch()?;
    let mut latest = boot_time()?;
    loop {
        steps.next().await?;
        let boot = boot_time()?;
        let is_step = is_step_forward(latest, boot);
        latest = latest.max(boot);
        if is_step {
            info!("the wall clock was set forward; new handshakes carry the new time");
            tunnel.restamp();
        }
    }
}

/// Steps of the wall clock relative to the time that the machine has been awake: when it is set, and when the
/// machine has woken up. Small corrections that other programs make count, too.
pub struct Steps {
    timer: AsyncFd<Fd>,
}

impl Steps {
    /// Watches from now on.
    pub fn watch() -> std::io::Result<Self> {
        let timer = TimerFd::new(
            ClockId::CLOCK_REALTIME,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        // SAFETY: `Fd` owns the descriptor, keeps it open until dropped, and never returns another.
        let timer = unsafe { AsyncFd::register_with_interest(Fd(timer), Interest::READABLE) }?;
        arm(&timer)?;
        Ok(Self { timer })
    }

    /// Waits for the next step. Cancel-safe.
    pub async fn next(&self) -> std::io::Result<()> {
        let mut ready = self.timer.readable().await?;
        ready.clear_ready();
        match self.timer.get_ref().0.wait() {
            Ok(()) | Err(Errno::ECANCELED | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        arm(&self.timer)
    }
}

fn arm(timer: &AsyncFd<Fd>) -> std::io::Result<()> {
    let armed = timer.get_ref().0.set(
        Expiration::OneShot(TimeSpec::from_duration(NEVER)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET,
    );
    match armed {
        // The clock was set meanwhile, which the caller sees when it looks, and the timer is armed all the same
        // (timerfd_create(2)).
        Ok(()) | Err(Errno::ECANCELED) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Wall-clock time of boot; changes only when the clock is set.
fn boot_time() -> std::io::Result<Duration> {
    let up = clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.unwrap_or_default().saturating_sub(up))
}

/// After a backward step the stamps continue from the latest: an earlier one would be a replay.
fn is_step_forward(latest: Duration, boot: Duration) -> bool {
    boot.saturating_sub(latest) >= LEAST_STEP
}

struct Fd(TimerFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_forward_step_counts() {
        let boot = Duration::from_secs(1_000_000);
        assert!(is_step_forward(boot, boot + Duration::from_secs(86_400)));
        assert!(!is_step_forward(boot, boot + Duration::from_millis(300)));
        assert!(!is_step_forward(boot, boot - Duration::from_secs(86_400)));
    }

    #[test]
    fn the_boot_time_does_not_change() {
        let first = boot_time().unwrap();
        let second = boot_time().unwrap();
        assert!(first.abs_diff(second) < LEAST_STEP);
        assert!(!first.is_zero());
    }

    #[test]
    fn every_step_of_the_wall_clock_is_noticed() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let steps = Steps::watch().unwrap();
            for nanoseconds in [1, -1] {
                if let Err(errno) = step(nanoseconds) {
                    eprintln!("SKIPPED every_step_of_the_wall_clock_is_noticed: {errno}");
                    return;
                }
                let noticed = tokio::time::timeout(Duration::from_secs(20), steps.next());
                noticed.await.expect("it is noticed").unwrap();
            }
        });
    }

    #[test]
    fn a_step_while_the_timer_is_armed_again_does_not_end_the_watch() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let steps = Steps::watch().unwrap();
            if let Err(errno) = step(1) {
                eprintln!("SKIPPED a_step_while_the_timer_is_armed_again: {errno}");
                return;
            }
            arm(&steps.timer).unwrap();
            step(-1).unwrap();
            let noticed = tokio::time::timeout(Duration::from_secs(20), steps.next());
            noticed.await.expect("it is noticed").unwrap();
        });
    }

    /// Sets the wall clock to a time that is this much later.
    fn step(nanoseconds: i64) -> nix::Result<()> {
        // SAFETY: all zero is a valid `timex`.
        let mut change: libc::timex = unsafe { std::mem::zeroed() };
        change.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
        change.time.tv_sec = nanoseconds.div_euclid(1_000_000_000);
        // With `ADJ_NANO` this field holds nanoseconds.
        change.time.tv_usec = nanoseconds.rem_euclid(1_000_000_000);
        // SAFETY: the kernel reads and writes one `timex`.
        Errno::result(unsafe { libc::adjtimex(&raw mut change) }).map(drop)
    }
}
