//! The clocks that boringtun reads.

use std::{
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mock_instant::MockClock;

thread_local! {
    /// How far the wall clock of this thread runs ahead, in nanoseconds.
    static AHEAD: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn advance(time: Duration) {
    MockClock::advance(time);
    AHEAD.set(AHEAD.get() + time.as_nanos() as u64);
}

/// Resets the wall clock, which the fuzzing engine reads as well.
pub(crate) fn reset() {
    AHEAD.set(0);
}

/// Advances the wall clock along with boringtun's clock, which the feature does not: handshakes of
/// keys made hours later must not seem older than earlier ones.
// SAFETY: it makes the same system call as the function of the C library, and then adds to the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    // SAFETY: passes the arguments on unchanged.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    if clock == libc::CLOCK_REALTIME && result == 0 {
        let ahead = AHEAD.get() as i64;
        // SAFETY: the kernel has just written to it, so the pointer is valid.
        let time = unsafe { &mut *time };
        let nanoseconds = time.tv_nsec + ahead % 1_000_000_000;
        time.tv_sec += ahead / 1_000_000_000 + nanoseconds / 1_000_000_000;
        time.tv_nsec = nanoseconds % 1_000_000_000;
    }
    result
}

#[test]
fn the_wall_clock_goes_along() {
    let before = SystemTime::now();
    advance(Duration::from_secs(3600));
    let passed = SystemTime::now().duration_since(before).unwrap_or_default();
    assert!(passed >= Duration::from_secs(3600) && before > UNIX_EPOCH);
}
