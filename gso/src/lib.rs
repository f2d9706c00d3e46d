//! The GSO queue and the UDP sockets it is flushed to.
//!
//! ```text
//!  append(destination, datagram)          flush, once per tick
//!  ───────────▶ GsoQueue ── front() ──▶ Flusher ── sendmsg(UDP_SEGMENT) ──▶ UdpSockets
//!                (batches keyed by            │
//!                 destination, length)        └─ what the kernel refuses goes one by one
//!
//!  UdpSockets ── recvmmsg + UDP_GRO ──▶ ReceiveBuffers ── next_datagram() ──▶
//! ```
//!
//! [`queue`] and [`flush`] are pure: no socket, no clock. [`udp`] is the only module of Convoy
//! that names quinn-udp and socket2.

mod buffers;
pub mod flush;
pub mod queue;
pub mod receive;
pub mod udp;

pub use flush::{Flushed, Flusher, SendDatagrams};
pub use queue::{Batch, Destination, Full, GsoQueue};
pub use receive::{Datagram, ReceiveBuffers};
pub use udp::{BoundSockets, SocketOptions, UdpSockets};
