//! The command line of `convoy capture`.

use std::path::PathBuf;

use clap::{Args, value_parser};

const AFTER_HELP: &str = "\
Examples:
  convoy capture wg0 -w wg0.pcapng              record until interrupted
  convoy capture wg0 -w wg0.pcapng --count 100  record a hundred packets
  convoy capture wg0 -w - | tshark -r -         show them as they pass

Records packets in the clear, in both directions; only you can read the file. With TUN offload, TCP and UDP pass the \
interface in super-packets of up to 64 KiB, which the tunnel cuts and merges. Start the tunnel with `--tun-offload \
off` to record them as its peers see them.

Exit status:
  0  the capture was ended by a signal, by --count, or by its reader
  1  it could not begin, or the interface is gone
  2  the command line is wrong";

/// The arguments of `convoy capture`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CaptureArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE")]
    pub name: PathBuf,

    /// The pcapng file to write; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,

    /// Stop after N packets
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}
