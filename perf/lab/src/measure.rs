//! Measures a tunnel, for the speed test and the benches.
//!
//! 1. [`Bed`]: two namespaces, a daemon at each end of a tunnel between them, and agents beside the daemons.
//! 2. [`Ends`]: TCP, paced UDP and latency between those agents.
//! 3. [`highest_rate`]: the highest rate that a path carries with little loss, confirmed;
//!    [`rate_that_half_pass`]: a similar rate as an average, for repeated measurements.
//! 4. [`read`]: CPU time and counters of both daemons; [`check`]: whether they still run; [`process`]: the
//!    resource use of any process.
//! 5. [`Sample`]: medians, spreads and ratios; [`Host`]: the machine.

mod bed;
mod daemons;
mod ends;
mod host;
pub mod process;
mod search;
mod statistics;

pub use crate::traffic::{Direction, TcpLoad, UdpLoad};
pub use bed::Bed;
pub use convoy_report::Counters;
pub use daemons::{Reading, Readings, check, counters, log_tail, read};
pub use ends::{Between, Ends};
pub use host::Host;
pub use search::{
    Attempt, Found, Range, Stage, TOLERATED_LOSS, Trial, highest_rate, rate_that_half_pass,
};
pub use statistics::Sample;
