//! The command line. Each daemon switch can also be set in the environment, for use with wg-quick.

mod capture;
mod client;
mod doctor;
mod exec;
mod forward;
mod log;
mod userspace;

use std::{path::PathBuf, str::FromStr};

use clap::{
    ArgAction, Args, Parser, Subcommand, ValueEnum,
    builder::{BoolishValueParser, FalseyValueParser},
};
use convoy_aead::Aead;
use convoy_tun::OffloadRequest;

use crate::{doctor::probes, metrics};
pub(crate) use capture::CaptureArgs;
pub(crate) use client::{
    DownArgs, EventsArgs, LONGEST_PAUSE, PauseArgs, ReloadArgs, ResumeArgs, StatusArgs, UpArgs,
};
pub(crate) use doctor::DoctorArgs;
pub(crate) use exec::{EXEC_SUPERVISOR, ExecArgs, ExecSupervisorArgs, NAMESPACE_HOLDER};
pub(crate) use forward::{ForwardArgs, ImportArgs};
pub(crate) use log::{LogArgs, LogLevel};
pub(crate) use userspace::{EngineChoice, NatChoice, UserspaceArgs};

#[cfg(feature = "measure")]
use convoy_perf::{profile::ProfileArgs, speedtest::SpeedtestArgs};

const AFTER_HELP: &str = "\
Other environment variables:
  LOG_LEVEL     verbose, debug, info, error or silent [default: info]. In the background the daemon
                logs only if LOG_LEVEL or RUST_LOG is set, to the caller's stdout and stderr.
  RUST_LOG      a tracing-subscriber filter; overrides LOG_LEVEL
  WG_TUN_FD     file descriptor of an open TUN device to use instead of creating one
  WG_UAPI_FD    file descriptor of a listening UAPI socket to use instead of creating one

With wg-quick: WG_QUICK_USERSPACE_IMPLEMENTATION=convoy CONVOY_BATCH=20 wg-quick up wg0

For an interface that has the name of a command, put -- before it: convoy -- stats";

const CHECK_AFTER_HELP: &str = "\
Exit status:
  0  the configuration is valid, perhaps with warnings
  1  it is not, or, with --strict, there are warnings
  2  the command line is wrong";

/// Userspace WireGuard: creates the interface IFACE and carries its packets.
///
/// Returns once the interface exists and `wg` can configure it; the link is left down. The daemon
/// ends when the interface is deleted, when its socket in /var/run/wireguard is removed, and on
/// SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(
    name = "convoy",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    /// Name of the interface, at most 15 bytes
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interface: Option<InterfaceName>,

    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Commands other than running the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring up a tunnel from its configuration file: interface, routes, name servers, kill switch
    ///
    /// Reads a file of wg-quick(8), sets everything up and returns once the tunnel can be used. A process in
    /// the background then keeps it so: it follows the network, looks names up again, and restores what other
    /// programs remove. With --userspace it needs no root: ports of this host lead into the tunnel instead.
    Up(UpArgs),
    /// Run a command that sees only a tunnel, without root
    ///
    /// Brings up a tunnel of its own from a file of wg-quick(8), runs the command in it and takes it down again.
    /// The host's network stays as it is.
    Exec(ExecArgs),
    /// Forward ports of this host, without a tunnel
    ///
    /// Listens as FILE says, and connects clients with the targets that FILE or, by SOCKS5 or HTTP CONNECT, they
    /// themselves name.
    Forward(ForwardArgs),
    /// Print a file for `convoy forward` that does what a file of rinetd says
    Import(ImportArgs),
    /// Take a tunnel down and put everything back
    Down(DownArgs),
    /// Apply the changes in a tunnel's configuration file
    Reload(ReloadArgs),
    /// Show which tunnels are up, and what is wrong
    Status(StatusArgs),
    /// Print what happens to tunnels, as it happens
    Events(EventsArgs),
    /// Record the packets inside a tunnel for Wireshark or tshark
    Capture(CaptureArgs),
    /// Let packets leave outside a tunnel for a time, as for the login page of a hotel
    Pause(PauseArgs),
    /// End a pause
    Resume(ResumeArgs),
    /// Log more or less of a running tunnel or daemon for a time
    Log(LogArgs),
    /// Check a configuration file and show what is wrong with it
    ///
    /// Reads FILE and the peers in the folder beside it whose name ends in .d in place of .conf.
    /// Shows errors and warnings on standard error, and changes nothing.
    #[command(after_help = CHECK_AFTER_HELP)]
    Check(CheckArgs),
    /// Find out what keeps a tunnel from working or from being fast, and what to do about it
    ///
    /// Checks the kernel and its offload by trials, buffers, the reverse path filter, name servers, other VPNs and
    /// the clock; with NAME also its configuration, its endpoints and whether they answer a handshake.
    Doctor(DoctorArgs),
    /// Generate a private key and print it
    Genkey,
    /// Generate a preshared key and print it
    Genpsk,
    /// Print the public key of the private key on standard input
    Pubkey,
    /// Show the counters of a running daemon
    Stats(StatsArgs),
    #[cfg(feature = "measure")]
    /// Profile a running daemon or forwarder: its CPU time by function, and its system calls
    ///
    /// Runs perf, then strace, on the daemon while it carries its usual traffic. Writes to DIR:
    /// report.md (read it first), profile.perf (for profiler.firefox.com), flamegraph.svg,
    /// syscalls.json and stat.json. Needs root, or a daemon that you own and
    /// `sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`.
    Profile(ProfileArgs),
    #[cfg(feature = "measure")]
    /// Measure a tunnel on this machine, or one between two hosts
    Speedtest(SpeedtestArgs),
    /// Explain a command, or the keys of a configuration file (`convoy help config`)
    Help(HelpArgs),
    /// Write man pages and shell completions to DIR, for packages
    #[command(name = GENERATE_DOCUMENTS, hide = true)]
    GenerateDocuments(GenerateDocumentsArgs),
    /// Try what the kernel offers, in a network namespace, for `convoy doctor`
    #[command(name = probes::COMMAND, hide = true)]
    DoctorProbe,
    /// Become the supervisor of `convoy exec`
    #[command(name = EXEC_SUPERVISOR, hide = true)]
    ExecSupervisor(ExecSupervisorArgs),
    /// Become the process that holds the namespaces of `convoy exec`
    #[command(name = NAMESPACE_HOLDER, hide = true)]
    NamespaceHolder,
    /// Become the tunnel process of `convoy up`
    #[command(hide = true)]
    TunnelProcess(TunnelProcessArgs),
    #[cfg(feature = "measure")]
    /// Run the traffic jobs that arrive on standard input
    #[command(name = convoy_perf::speedtest::INSIDE, hide = true)]
    LabInside,
}

/// Switches of the daemon.
#[derive(Clone, Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Stay in the foreground
    #[arg(short, long, env = "WG_PROCESS_FOREGROUND", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) foreground: bool,

    /// Send several datagrams in one call (UDP_SEGMENT)
    #[arg(long, env = "CONVOY_GSO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) gso: Switch,

    /// Exchange super-packets with the TUN device (TSO, USO)
    #[arg(long, env = "CONVOY_TUN_OFFLOAD", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) tun_offload: Switch,

    /// Receive several datagrams in one call (UDP_GRO)
    #[arg(long, env = "CONVOY_UDP_GRO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) udp_gro: Switch,

    /// Seal and open packets sixteen at a time, or one by one with ring
    #[arg(long, env = "CONVOY_AEAD", hide_env_values = true)]
    #[arg(value_name = "WHICH", value_enum, default_value_t = AeadChoice::Auto)]
    pub(crate) aead: AeadChoice,

    /// Most packets in one batch, 1 to 50
    #[arg(long, env = "CONVOY_BATCH", hide_env_values = true)]
    #[arg(value_name = "PACKETS", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) batch: u8,

    /// Lower the MSS in TCP handshakes to what the interface's MTU carries, in both directions
    ///
    /// For hosts behind the tunnel: where ICMP is filtered, they do not learn that their segments are too
    /// long for it. iptables does the same with TCPMSS --clamp-mss-to-pmtu.
    #[arg(long, env = "CONVOY_CLAMP_MSS", hide_env_values = true)]
    #[arg(value_name = "on|off", default_value = "off", action = ArgAction::Set)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub(crate) clamp_mss: bool,

    /// Format of the log, which goes to stdout
    #[arg(long, env = "CONVOY_LOG_FORMAT", hide_env_values = true)]
    #[arg(value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,

    /// Serve metrics for Prometheus on a Unix socket, or on a port of this machine
    ///
    /// GET /metrics answers in OpenMetrics text. GET /healthz answers 200 while packets can pass, otherwise 503 and
    /// the reason. A client needs a handshake within the last three minutes once it has sent anything: set
    /// PersistentKeepalive if the tunnel may be idle.
    #[arg(long, env = "CONVOY_METRICS", hide_env_values = true)]
    #[arg(value_name = "unix:PATH|127.0.0.1:PORT")]
    pub(crate) metrics: Option<metrics::Address>,

    /// Answer only requests that bear the token in FILE; a port needs one
    #[arg(long, env = "CONVOY_METRICS_TOKEN_FILE", hide_env_values = true)]
    #[arg(value_name = "FILE", requires = "metrics", value_parser = absolute)]
    pub(crate) metrics_token_file: Option<PathBuf>,
}

/// A path that outlasts the working directory.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// The arguments of `convoy check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A configuration file, or NAME for /etc/wireguard/NAME.conf
    #[arg(value_name = "FILE|NAME")]
    pub(crate) file: PathBuf,

    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
}

/// The arguments of `convoy stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Interface of the daemon
    #[arg(value_name = "IFACE")]
    pub(crate) interface: InterfaceName,

    /// Print one line of JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `convoy help`.
#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command, or `config`
    #[arg(value_name = "COMMAND|config")]
    pub(crate) topic: Option<String>,
}

/// Too long for the name of an interface, so that it cannot hide one.
const GENERATE_DOCUMENTS: &str = "generate-documents";

/// The arguments of the hidden `convoy generate-documents`.
#[derive(Debug, Args)]
pub(crate) struct GenerateDocumentsArgs {
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// The arguments of the hidden `convoy tunnel-process`: the daemon's.
#[derive(Debug, Args)]
pub(crate) struct TunnelProcessArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,

    #[arg(value_name = "IFACE")]
    pub(crate) interface: InterfaceName,
}

/// The implementation that seals and opens packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AeadChoice {
    /// AVX-512 if the CPU has it, otherwise ring
    Auto,
    /// ring
    Ring,
}

/// Whether to use a kernel feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Use it if the kernel supports it
    Auto,
    /// Fail if the kernel does not support it
    On,
    /// Do not use it
    Off,
}

/// Log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text on a terminal, fields for systemd's journal, elsewhere JSON
    Auto,
    /// Human-readable
    Text,
    /// One JSON object per line, always with time, severity and message
    Json,
    /// Fields, sent to systemd's journal instead of stdout
    Journal,
}

/// A name that the kernel accepts for an interface and that is not a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceName(String);

impl InterfaceName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let is_forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        if !(1..=15).contains(&name.len()) {
            return Err("an interface name has 1 to 15 bytes");
        }
        if matches!(name, "." | "..") || name.contains(is_forbidden) {
            return Err("an interface name contains no slash, colon or white space");
        }
        Ok(Self(name.to_owned()))
    }
}

impl From<Switch> for convoy_tunnel::Switch {
    fn from(switch: Switch) -> Self {
        match switch {
            Switch::Auto => Self::Auto,
            Switch::On => Self::On,
            Switch::Off => Self::Off,
        }
    }
}

impl From<AeadChoice> for Aead {
    fn from(choice: AeadChoice) -> Self {
        match choice {
            AeadChoice::Auto => Self::auto(),
            AeadChoice::Ring => Self::ring(),
        }
    }
}

impl From<Switch> for OffloadRequest {
    fn from(switch: Switch) -> Self {
        match switch {
            Switch::Auto => Self::Auto,
            Switch::On => Self::On,
            Switch::Off => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests;
