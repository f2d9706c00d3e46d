//! Whether a panic is ending the process, and in which thread it was.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// The thread whose panic ends the process.
static PANICKED: OnceLock<ThreadId> = OnceLock::new();

/// Notes that this thread has panicked; returns whether it is the first.
pub(super) fn begin() -> bool {
    let is_first = !HAS_PANICKED.swap(true, Ordering::SeqCst);
    if is_first {
        PANICKED.get_or_init(|| thread::current().id());
    }
    is_first
}

/// Waits forever if a thread has panicked, so that only the panic decides how the process ends.
pub async fn let_it_end() {
    if HAS_PANICKED.load(Ordering::SeqCst) {
        std::future::pending().await
    }
}

/// Returns whether a panic is ending the process. Its line may block: it has a time limit of its own.
pub(crate) fn is_ending() -> bool {
    HAS_PANICKED.load(Ordering::SeqCst)
}

/// Returns whether the line of another thread's panic is the last one of the log. Removing the files may take a moment
/// longer.
pub(crate) fn is_ending_elsewhere() -> bool {
    let panicked = PANICKED.get();
    panicked.is_some_and(|panicked| *panicked != thread::current().id())
}
