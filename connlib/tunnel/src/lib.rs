//! The event loop: TUN, state machine and UDP, one tick at a time.
//!
//! ```text
//!  Tunnel (handle, any thread)
//!    │ commands, signals
//!    ▼
//!  EventLoop (thread "tunnel"): tick() = commands → timers → receive → routes → TUN intake → send → deliver
//!    ├── convoy_tun::Reader, Writer   threads "tun-reader" and "tun-writer"
//!    ├── convoy_proto::Node           the state machine
//!    └── convoy_gso::{GsoQueue, Flusher, UdpSockets}
//! ```
//!
//! Read `event_loop.rs` first: `tick` is the order of all work.

#[doc(hidden)]
pub mod adapters;
mod budget;
mod clock;
mod command;
mod error;
mod event_loop;
mod handle;
mod metrics;
mod options;
mod outer;
mod recent;
mod start;
mod streams;
mod turn;

pub use convoy_proto::{Outcome, PeerEvent};
pub use error::{ApplyError, Closed, Exit, StartError};
pub use handle::Tunnel;
pub use options::{Options, Switch};
pub use outer::Outer;

/// Upper bound of the data path's buffers, in bytes: pools, queues, held packets and receive buffers.
pub const DATA_PATH_BYTES: usize = convoy_tun::POOL_BYTES
    + 2 * convoy_gso::queue::QUEUE_BYTES
    + convoy_gso::receive::RECEIVE_BUFFERS * convoy_gso::receive::RECEIVE_BUFFER_BYTES
    + convoy_proto::HELD_BYTES
    + convoy_proto::CONTROL_QUEUE_BYTES;

/// Upper bound of the buffers of an outer tunnel, in bytes, which a tunnel through another has beside its own.
pub const OUTER_BYTES: usize =
    convoy_via::HOP_BYTES + convoy_proto::HELD_BYTES + convoy_proto::CONTROL_QUEUE_BYTES;

const _: () = assert!(OUTER_BYTES < 8 * 1024 * 1024);
const _: () = assert!(DATA_PATH_BYTES < 16 * 1024 * 1024);

/// Upper bound of the buffers of streams to TURN servers, in bytes, while there are any.
pub const STREAMS_BYTES: usize = streams::MAX_STREAMS * convoy_carrier::STREAM_BYTES;

const _: () = assert!(STREAMS_BYTES < 3 * 1024 * 1024);
