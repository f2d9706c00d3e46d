//! Turns: the tests of a program that run at the same time.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

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
pub struct Turn(Option<Kind>);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Together,
    /// Beside others, as this user.
    User(u32),
    Alone,
}

struct State {
    running: Vec<Kind>,
    /// Tests that would run beside others, and wait.
    waiting: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    running: Vec::new(),
    waiting: 0,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

impl Turn {
    /// Waits until the test may run beside others.
    #[must_use]
    pub fn together() -> Self {
        Self::take(Kind::Together)
    }

    /// The same for a test whose processes belong to the user `uid`, and which counts them.
    #[must_use]
    pub fn of_user(uid: u32) -> Self {
        Self::take(Kind::User(uid))
    }

    /// Waits until the test may run alone. `reason` is for the reader of the test: what another test would
    /// disturb.
    #[must_use]
    pub fn alone(reason: &'static str) -> Self {
        debug_assert!(!reason.is_empty());
        Self::take(Kind::Alone)
    }

    fn take(kind: Kind) -> Self {
        if HAS_TURN.replace(true) {
            return Self(None);
        }
        let begin = Instant::now();
        let is_waiting = usize::from(kind != Kind::Alone);
        let mut state = state();
        state.waiting += is_waiting;
        let turn = CHANGED.wait_while(state, |state| !state.admits(kind));
        state = turn.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= is_waiting;
        state.running.push(kind);
        drop(state);
        report(begin.elapsed());
        Self(Some(kind))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(kind) = self.0 else { return };
        let mut state = state();
        let own = state.running.iter().position(|it| *it == kind);
        own.map(|own| state.running.swap_remove(own));
        HAS_TURN.set(false);
        CHANGED.notify_all();
    }
}

impl State {
    fn admits(&self, kind: Kind) -> bool {
        match kind {
            Kind::Alone => self.running.is_empty() && self.waiting == 0,
            _ if self.running.contains(&Kind::Alone) => false,
            Kind::User(_) if self.running.contains(&kind) => false,
            Kind::Together | Kind::User(_) => self.running.len() < TOGETHER,
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

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
