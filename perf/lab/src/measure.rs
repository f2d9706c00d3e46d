//! Measuring a tunnel: for the speed test and the benches.
//!
//! 1. [`Bed`]: two namespaces, a daemon at each end of a tunnel between them, agents beside them.
//! 2. [`Ends`]: TCP, paced UDP and latency between those agents.
//! 3. [`highest_rate`]: what a path carries with little loss; [`rate_that_half_pass`]: the same as an
//!    average, to be repeated.
//! 4. [`read`]: what both daemons have used and counted so far; [`check`]: whether they live;
//!    [`process`]: the same of any program.
//! 5. [`Sample`]: medians, spreads and ratios of what was measured; [`Host`]: on what machine.

mod bed;
mod daemons;
mod ends;
mod error;
mod host;
pub mod process;
mod search;
mod statistics;
mod up_and_down;

pub use bed::Bed;
pub use convoy_stats::Counters;
pub use daemons::{Reading, Readings, check, counters, cpu_time, log_tail, peak_memory, read};
pub use ends::{Direction, Ends, TcpLoad, UdpLoad};
pub use error::MeasureError;
pub use host::{Host, memory_kib};
pub use search::{Attempt, Found, Range, Stage, TOLERATED_LOSS, Trial, highest_rate};
pub use statistics::Sample;
pub use up_and_down::rate_that_half_pass;
