//! The event loop: TUN, state machine and UDP, one tick at a time.

mod handle;

pub use handle::{ApplyError, Closed, Exit, Options, Switch, Tunnel};
