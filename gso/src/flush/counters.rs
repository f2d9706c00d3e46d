//! Counters of the flush.

/// Counts since the start.
#[derive(Clone, Debug)]
pub struct FlushCounters {
    /// `segments[n]`: sends that carried `n` datagrams.
    pub segments: [u64; 65],
    /// Send calls, refused ones included.
    pub calls: u64,
    /// Datagrams dropped because the kernel refused them.
    pub failed: u64,
    /// Datagrams dropped because they were too long for the path, even one by one.
    pub too_big: u64,
    /// Datagrams dropped because the kernel still lacked buffers after all retries.
    pub no_buffers: u64,
    /// Batches that the kernel refused, so that their datagrams went one by one.
    pub refused_batches: u64,
    /// Sends put off because the socket was full (`EAGAIN`).
    pub blocked: u64,
    /// Sends put off because the kernel lacked buffers (`ENOBUFS`).
    pub put_off: u64,
    /// Pinned source addresses that were gone.
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
