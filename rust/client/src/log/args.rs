//! The command line of `convoy log`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use convoy_process::logging::LogLevel;

use crate::args::time;

const AFTER_HELP: &str = "\
Examples:
  convoy log wg0 debug             log handshakes and changes of the network for five minutes
  convoy log wg0 debug --for 1h    the same, for an hour
  convoy log wg0 info --for 1s     go back soon

Changes both processes of a tunnel of `convoy up`, or the daemon of `convoy IFACE`. The level goes back by itself. \
The log stays where it was: in journalctl -u convoy@wg0, or where the program was started with LOG_LEVEL.

Exit status:
  0  the level has changed
  1  it has not: nothing is up, or it was started without a log
  2  the command line is wrong";

/// The arguments of `convoy log`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct LogArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: PathBuf,

    /// Least severity to log: this and all that matters more
    #[arg(value_enum)]
    pub(crate) level: LogLevel,

    /// How long, such as 90s, 5m or 1h30m; a day at most
    #[arg(long = "for", value_name = "TIME", default_value = "5m")]
    #[arg(value_parser = time)]
    pub(crate) time: Duration,
}
