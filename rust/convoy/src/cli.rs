//! The command line. Every switch of the daemon is an environment variable too, for wg-quick.

use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum, builder::FalseyValueParser};
use convoy_tun::OffloadRequest;

#[cfg(feature = "measure")]
use convoy_perf::{
    profile::ProfileArgs,
    speedtest::{InsideArgs, SpeedtestArgs},
};

const AFTER_HELP: &str = "\
Environment, besides the above:
  LOG_LEVEL     verbose, debug, info, error or silent [default: info]. In the background, logs are
                kept (on the standard output and error of the caller) only if this is set.
  RUST_LOG      a filter as of tracing-subscriber; wins over LOG_LEVEL
  WG_TUN_FD     the number of an open file descriptor of a TUN device, used instead of a new one
  WG_UAPI_FD    the number of a listening UAPI socket, used instead of a new one

With wg-quick: WG_QUICK_USERSPACE_IMPLEMENTATION=convoy CONVOY_BATCH=20 wg-quick up wg0
An interface that is named like a command goes behind two hyphens: convoy -- stats";

/// WireGuard in userspace: makes the interface IFACE and carries its packets.
///
/// Returns once the interface is there and `wg` can configure it; the interface is left down. Ends
/// when the interface is deleted, when its socket in /var/run/wireguard is removed, and on SIGTERM
/// and SIGINT.
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
    /// The interface, at most 15 bytes
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interface: Option<InterfaceName>,

    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What can be done besides running the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the running daemon of an interface has counted
    Stats(StatsArgs),
    #[cfg(feature = "measure")]
    /// Look into a running daemon: where its CPU time goes, which system calls it makes
    ///
    /// perf and strace look at it one after the other, while it carries what there is to carry. DIR then
    /// holds report.md, to be read first; profile.perf, for profiler.firefox.com; flamegraph.svg;
    /// syscalls.json; and stat.json. Needs root; or a daemon of one's own and
    /// `sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`.
    Profile(ProfileArgs),
    #[cfg(feature = "measure")]
    /// Measure this machine's tunnel, or one between two hosts
    Speedtest(SpeedtestArgs),
    #[cfg(feature = "measure")]
    /// The part of the speed test that runs inside its namespaces
    #[command(name = convoy_perf::speedtest::INSIDE, hide = true)]
    LabInside(InsideArgs),
}

/// The switches of the daemon.
#[derive(Clone, Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Stay in the foreground
    #[arg(short, long, env = "WG_PROCESS_FOREGROUND", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) foreground: bool,

    /// Hand the kernel several datagrams in one send (UDP_SEGMENT)
    #[arg(long, env = "CONVOY_GSO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) gso: Switch,

    /// Take and give super-packets on the TUN device (TSO, USO)
    #[arg(long, env = "CONVOY_TUN_OFFLOAD", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) tun_offload: Switch,

    /// Take several datagrams in one receive (UDP_GRO)
    #[arg(long, env = "CONVOY_UDP_GRO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_enum, default_value_t = Switch::Auto)]
    pub(crate) udp_gro: Switch,

    /// The most packets in one batch, 1 to 50
    #[arg(long, env = "CONVOY_BATCH", hide_env_values = true)]
    #[arg(value_name = "PACKETS", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) batch: u8,

    /// How logs are written to the standard output
    #[arg(long, env = "CONVOY_LOG_FORMAT", hide_env_values = true)]
    #[arg(value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// The arguments of `convoy stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The interface that the daemon was started for
    #[arg(value_name = "IFACE")]
    pub(crate) interface: InterfaceName,

    /// One line of JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a kernel feature is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Where the kernel has it
    Auto,
    /// Fail where the kernel does not have it
    On,
    /// Never
    Off,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line, always with time, severity and message
    Json,
}

/// A name that the kernel takes for an interface, and that is no path.
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
            return Err("an interface's name has 1 to 15 bytes");
        }
        if matches!(name, "." | "..") || name.contains(is_forbidden) {
            return Err("an interface's name has no slash, colon or white space");
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
