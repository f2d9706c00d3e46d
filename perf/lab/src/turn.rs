//! Turns: the tests of a program that run at the same time.

use std::{
    cell::Cell,
    env,
    io::{self, Write as _},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Tests that run beside each other at most: most of them wait most of the time.
const TOGETHER: usize = 6;
/// Shorter waits are not reported.
const WORTH_A_LINE: Duration = Duration::from_millis(100);

/// The right to run a test: beside others, or alone.
///
/// Labs share nothing but the machine. A test that judges clocks, processor time or what the whole machine
/// does runs alone. It waits until no other test runs or could run, so that tests seldom have to wait for it.
/// Tests that count the processes of a user run beside others, but not beside each other. A thread that has a
/// turn gets another one at once.
pub struct Turn {
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Together,
    /// Beside others, as this user.
    User(u32),
    Alone,
    /// Given to a thread that has a turn already.
    Within,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Tests that would run beside others, and wait.
    waiting: usize,
    /// Users as whom tests run.
    users: Vec<u32>,
    is_one_alone: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    running: 0,
    waiting: 0,
    users: Vec::new(),
    is_one_alone: false,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

impl Turn {
    /// Waits until the test may run beside others.
    #[must_use]
    pub fn together() -> Self {
        Self::take(|| {
            drop(join(|_| true));
            Kind::Together
        })
    }

    /// The same for a test whose processes belong to the user `uid`, and which counts them.
    #[must_use]
    pub fn of_user(uid: u32) -> Self {
        Self::take(|| {
            join(|state| !state.users.contains(&uid)).users.push(uid);
            Kind::User(uid)
        })
    }

    /// Waits until the test may run alone. `reason` is for the reader of the test: what another test would
    /// disturb.
    #[must_use]
    pub fn alone(reason: &'static str) -> Self {
        debug_assert!(!reason.is_empty());
        Self::take(|| {
            let must_wait =
                |state: &mut State| state.is_one_alone || state.running > 0 || state.waiting > 0;
            wait_while(state(), must_wait).is_one_alone = true;
            Kind::Alone
        })
    }

    fn take(wait: impl FnOnce() -> Kind) -> Self {
        let kind = if HAS_TURN.replace(true) {
            Kind::Within
        } else {
            let begin = Instant::now();
            let kind = wait();
            report(begin.elapsed());
            kind
        };
        Self { kind }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.kind {
            Kind::Within => return,
            Kind::Together => state().running -= 1,
            Kind::User(uid) => {
                let mut state = state();
                state.running -= 1;
                state.users.retain(|user| *user != uid);
            }
            Kind::Alone => state().is_one_alone = false,
        }
        HAS_TURN.set(false);
        CHANGED.notify_all();
    }
}

/// Tells `convoy-suite`, if it runs this test, how much of the test's duration was waiting.
fn report(waited: Duration) {
    if waited >= WORTH_A_LINE && env::var_os("CONVOY_SUITE").is_some() {
        let thread = thread::current();
        let test = thread.name().unwrap_or("?");
        // Bypasses libtest's capture; a closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "WAITED {:.3} {test}", waited.as_secs_f32());
    }
}

/// Waits until one more may run beside others.
fn join(may: impl Fn(&State) -> bool) -> MutexGuard<'static, State> {
    let mut state = state();
    state.waiting += 1;
    let must_wait =
        |state: &mut State| state.is_one_alone || state.running >= TOGETHER || !may(state);
    state = wait_while(state, must_wait);
    state.waiting -= 1;
    state.running += 1;
    state
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(
    state: MutexGuard<'static, State>,
    condition: impl FnMut(&mut State) -> bool,
) -> MutexGuard<'static, State> {
    let result = CHANGED.wait_while(state, condition);
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        thread,
    };

    use super::*;

    #[test]
    fn all_get_their_turn_and_one_that_is_alone_meets_nobody() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static OF_USER: AtomicUsize = AtomicUsize::new(0);
        let begin = Barrier::new(24);
        thread::scope(|scope| {
            for test in 0..24 {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    let (_turn, most) = match test % 3 {
                        0 => (Turn::alone("this is a test of it"), 1),
                        1 => (Turn::of_user(7), TOGETHER),
                        _ => (Turn::together(), TOGETHER),
                    };
                    let _within = Turn::together();
                    assert!(RUNNING.fetch_add(1, SeqCst) < most);
                    if test % 3 == 1 {
                        assert_eq!(OF_USER.fetch_add(1, SeqCst), 0);
                        thread::yield_now();
                        OF_USER.fetch_sub(1, SeqCst);
                    }
                    thread::yield_now();
                    RUNNING.fetch_sub(1, SeqCst);
                });
            }
        });
    }
}
