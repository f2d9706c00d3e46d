//! Scheduling of threads beside the event loop.

/// Keeps the calling thread from preempting others when it wakes up (`SCHED_BATCH`, sched(7)).
///
/// Under load the event loop keeps waking the reader and the writer, and the writer keeps waking whoever reads
/// from an inner connection. On a busy processor each wake-up would interrupt the loop for a single batch, which
/// can as well wait for the next. Idle processors are used as before.
pub fn preempt_nobody() {
    // The kernel's `struct sched_param` is only this integer; musl's is larger.
    let priority: libc::c_int = 0;
    // Not through musl's wrapper, which always fails. SAFETY: the kernel only reads `priority`, which
    // outlives the call; 0 is the calling thread.
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
