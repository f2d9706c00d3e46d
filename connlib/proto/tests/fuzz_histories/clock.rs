//! The clocks that boringtun looks at.

use std::{
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mock_instant::MockClock;

thread_local! {
    /// How far the wall clock of this thread is ahead, in nanoseconds.
    static AHEAD: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn advance(time: Duration) {
    MockClock::advance(time);
    AHEAD.set(AHEAD.get() + time.as_nanos() as u64);
}

/// The wall clock is right again, which an engine that fuzzes looks at, too.
pub(crate) fn set_right() {
    AHEAD.set(0);
}

/// The wall clock goes along with boringtun's, which the feature leaves out: handshakes of keys made
/// after hours must not seem older than those before.
// SAFETY: it does what that of the C library does, by the same system call, and then adds.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    // SAFETY: the arguments are passed on as they came.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    if clock == libc::CLOCK_REALTIME && result == 0 {
        let ahead = AHEAD.get() as i64;
        // SAFETY: the kernel has just written there.
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
