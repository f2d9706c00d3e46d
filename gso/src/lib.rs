//! The GSO queue, its flush, and the UDP sockets.
//!
//! ```text
//!  append(destination, datagram)          flush, once per tick
//!  ───────────▶ GsoQueue ── front() ──▶ Flusher ── sendmsg(UDP_SEGMENT) ──▶ UdpSockets
//!                (each batch of one           │
//!                 destination and length)     └─ a refused batch goes one datagram at a time
//!
//!  UdpSockets ── recvmmsg + UDP_GRO ──▶ ReceiveBuffers ── datagram() ──▶
//! ```
//!
//! [`queue`] and [`flush`] are pure: no socket, no clock. No other crate of Convoy names quinn-udp
//! or socket2.

mod buffers;
pub mod flush;
pub mod queue;
pub mod receive;
pub mod udp;

pub use convoy_types::{Datagram, Destination};
pub use flush::{Flushed, Flusher, SendDatagrams};
pub use queue::{Batch, GsoQueue, NotAppended};
pub use receive::ReceiveBuffers;
pub use udp::{BoundSockets, SocketOptions, UdpSockets};
