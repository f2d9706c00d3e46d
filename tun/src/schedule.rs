//! Scheduling of the two threads.

/// Lets the calling thread preempt no other when it wakes up (`SCHED_BATCH`, sched(7)).
///
/// Under load the event loop wakes both threads again and again. On a busy processor each of them would
/// interrupt it there, for a batch that can as well be joined by the next. Idle processors are used as
/// before.
pub(crate) fn preempt_nobody() {
    // The kernel's `struct sched_param` is this alone; that of musl is larger.
    let priority: libc::c_int = 0;
    // musl's own function always refuses. SAFETY: the kernel reads `priority`, which outlives the call; 0 is
    // the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_BATCH,
            &raw const priority,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "Cannot set SCHED_BATCH");
    }
}
