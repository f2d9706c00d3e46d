//! Bounds of what is read.

/// The largest file that is read: some 100,000 peers.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// The most bytes that `NAME.conf` and the files of `NAME.d` have together.
pub const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Most prefixes of a direct peer.
pub const MAX_DIRECT_PREFIXES: usize = 64;
/// Most TURN servers of a tunnel.
pub const MAX_TURN_SERVERS: usize = 4;
/// The most files that are read from `NAME.d`.
pub const MAX_DROP_INS: usize = 65_536;
