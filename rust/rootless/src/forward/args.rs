//! The command lines of `convoy forward` and `convoy import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use convoy_network::relay::{MAX_BUFFER, MIN_BUFFER, Method};
use convoy_process::logging::LogFormat;

const AFTER_HELP: &str = "\
Example:
  Forward = 8080:example.com:80          # connections to port 8080 of this host lead to example.com
  ForwardUDP = 5353:192.0.2.53:53        # datagrams and their answers
  Forward = *:2222:192.0.2.22:22         # on every address, so it needs a list:
  Allow = 192.0.2.0/24, 2001:db8::/32
  Deny = 192.0.2.66
  Socks5 = 1080                          # whatever the client names; UDP, too
  HttpConnect = 192.0.2.1:3128
  LoginFile = /etc/convoy/proxy          # a file with user:password

Keys:
  Forward, ForwardUDP  [address:]port:host:port, with IPv6 addresses in brackets
  Socks5, HttpConnect  [address:]port
  Allow, Deny          prefixes of clients; a client that is in both lists is denied
  TargetAllow, TargetDeny
                       prefixes of a proxy's targets: other hosts are refused this host's addresses,
                       its links and cloud metadata unless TargetAllow has them
  LoginFile            a file whose first line is user:password
  Buffer               8K to 256K [default: 64K]

Without an address, a listener can be reached from this host only. One that others can reach needs an Allow line or, \
if it is a proxy, a LoginFile. Lists and LoginFile apply to the listener above them; at the top of the file they \
apply to every listener, in addition to its own. Names are looked up for each connection.

The counters of each listener are logged on SIGUSR1 and at the end, by SIGTERM or SIGINT.";

/// The arguments of `convoy forward`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ForwardArgs {
    /// A file of `Key = value` lines
    pub(crate) file: PathBuf,

    /// The buffer of a connection while bytes move, 8K to 256K; overrides the file
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<usize>,

    /// How bytes move
    #[arg(long, value_name = "HOW", value_enum, default_value_t = RelayMethod::Splice)]
    pub(crate) relay: RelayMethod,

    /// Format of the log, which goes to stdout
    #[arg(long, env = "CONVOY_LOG_FORMAT", hide_env_values = true)]
    #[arg(value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
}

/// How bytes move between two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RelayMethod {
    /// Within the kernel: splice(2)
    Splice,
    /// Through a buffer of this process
    Copy,
    /// By tokio's copy_bidirectional, for comparison
    #[value(hide = true)]
    Tokio,
}

impl From<RelayMethod> for Method {
    fn from(method: RelayMethod) -> Self {
        match method {
            RelayMethod::Splice => Self::Splice,
            RelayMethod::Copy => Self::Copy,
            RelayMethod::Tokio => Self::Tokio,
        }
    }
}

pub(crate) fn size(text: &str) -> Result<usize, &'static str> {
    let error = "expected a size from 8K to 256K";
    let digits = text.strip_suffix(['k', 'K']).ok_or(error)?;
    let bytes = digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << 10));
    bytes
        .filter(|bytes| (MIN_BUFFER..=MAX_BUFFER).contains(bytes))
        .ok_or(error)
}

/// The arguments of `convoy import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A file of rinetd
    #[arg(value_name = "rinetd.conf")]
    pub(crate) file: PathBuf,
}
