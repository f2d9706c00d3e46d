//! The command line of `convoy doctor`.

use std::path::PathBuf;

use clap::Args;
use convoy_config::{Endpoint, parse_stun_server};

const AFTER_HELP: &str = "\
Examples:
  convoy doctor               check this host
  convoy doctor wg0           and what /etc/wireguard/wg0.conf needs: does its server answer?
  convoy doctor wg0 --json | jq '.findings[] | select(.severity == \"error\")'
  convoy doctor --nat wg0     how does the internet see this machine? Can a direct path come about?
  convoy doctor --nat --stun stun1.example.org --stun stun2.example.org
  convoy doctor --schema      print the schema of what --json prints

Run it as root, except with --nat; without root, it says what it could not check. It changes nothing. Handshakes are \
tried only if the tunnel is not up; otherwise the state of the tunnel itself is reported.

Exit status:
  0  all is well, perhaps with notes
  1  the checks could not run
  2  the command line is wrong
  3  there are warnings: the tunnel works, but worse than it could
  4  there are errors: the tunnel does not work";

/// The arguments of `convoy doctor`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DoctorArgs {
    /// A tunnel or its configuration file, up or not
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<PathBuf>,

    /// Check only the NAT in front of this machine, by STUN servers: are direct paths possible?
    ///
    /// Asks the servers of --stun and of the lines `#convoy: Stun` in the tunnel's file, four at most, how they see
    /// a fresh UDP socket. Two servers at different addresses tell whether the NAT maps endpoint-independently. Needs
    /// no root, unless the tunnel is up and takes all packets.
    #[arg(long)]
    pub(crate) nat: bool,

    /// Ask this STUN server, too; may be repeated. The default port is 3478
    #[arg(long, value_name = "HOST[:PORT]", requires = "nat", value_parser = parse_stun_server)]
    pub(crate) stun: Vec<Endpoint>,

    /// Print one line of JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the JSON Schema of what --json prints; do nothing else
    #[arg(long)]
    pub(crate) schema: bool,
}
