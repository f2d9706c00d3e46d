//! Counters of the flush.

/// Counts since the start.
#[derive(Clone, Debug)]
pub struct FlushCounters {
    /// `segments[n]`: sends that carried `n` datagrams.
    pub segments: [u64; 65],
    /// Send attempts, refused ones included; nearly all are one system call each.
    pub calls: u64,
    /// Datagrams dropped because the kernel refused them for any reason not below.
    pub failed: u64,
    /// Queued datagrams dropped because they were too long for the path, even one by one.
    pub too_big: u64,
    /// Datagrams dropped because the kernel still lacked buffers after all retries.
    pub no_buffers: u64,
    /// Batches that the kernel refused and whose datagrams were then sent one by one.
    pub refused_batches: u64,
    /// Attempts that found the socket full (`EAGAIN`).
    pub blocked: u64,
    /// Attempts that failed for lack of buffers (`ENOBUFS`) and were put off.
    pub put_off: u64,
    /// Sends for which the pinned source address was gone.
    pub lost_sources: u64,
}

impl Default for FlushCounters {
    fn default() -> Self {
        Self {
            segments: [0; 65],
            calls: 0,
            failed: 0,
            too_big: 0,
            no_buffers: 0,
            refused_batches: 0,
            blocked: 0,
            put_off: 0,
            lost_sources: 0,
        }
    }
}
