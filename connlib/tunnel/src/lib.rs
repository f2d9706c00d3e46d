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
mod recent;
mod start;
mod turn;

pub use convoy_proto::{Outcome, PeerEvent};
pub use error::{ApplyError, Closed, Exit, StartError};
pub use handle::Tunnel;
pub use options::{Options, Switch};

/// Upper bound of the data path's buffers, in bytes: pools, queues, held packets and receive buffers.
pub const DATA_PATH_BYTES: usize = convoy_tun::POOL_BYTES
    + 2 * convoy_gso::queue::QUEUE_BYTES
    + convoy_gso::receive::RECEIVE_BUFFERS * convoy_gso::receive::RECEIVE_BUFFER_BYTES
    + convoy_proto::HELD_BYTES
    + convoy_proto::CONTROL_QUEUE_BYTES;

const _: () = assert!(DATA_PATH_BYTES < 16 * 1024 * 1024);
