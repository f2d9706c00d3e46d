//! The command line: lists the commands, whose arguments are declared beside them. Only [`crate::run`] reads it.

use clap::{Parser, Subcommand};
use convoy_client::{
    args::{DownArgs, EventsArgs, PauseArgs, ReloadArgs, ResumeArgs, StatusArgs, UpArgs},
    log::LogArgs,
};
use convoy_keeper::{privileges::TunnelProcessArgs, tunnel::STEP};
use convoy_metrics::DaemonArgs;
use convoy_rootless::{
    args::NAMESPACE_HOLDER,
    exec::{EXEC_SUPERVISOR, ExecArgs, ExecSupervisorArgs},
    forward::{ForwardArgs, ImportArgs},
};
use convoy_stats::StatsArgs;

use crate::{
    capture::CaptureArgs,
    check::CheckArgs,
    daemon::args::DeviceName,
    doctor::{DoctorArgs, probes},
    documents::{self, GenerateDocumentsArgs},
    help::HelpArgs,
};

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
    max_term_width = 100,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    /// Name of the interface, at most 15 bytes
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interface: Option<DeviceName>,

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
    /// Let packets leave outside a tunnel for a time, e.g. for a captive portal
    Pause(PauseArgs),
    /// End a pause
    Resume(ResumeArgs),
    /// Log more or less of a running tunnel or daemon for a time
    Log(LogArgs),
    /// Check a configuration file and show what is wrong with it
    ///
    /// Reads FILE and the peers in the folder beside it whose name ends in .d in place of .conf.
    /// Shows errors and warnings on standard error, and changes nothing.
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
    /// syscalls.json, shares.json and stat.json. Needs root, or a daemon that you own and
    /// `sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`.
    Profile(ProfileArgs),
    #[cfg(feature = "measure")]
    /// Measure a tunnel on this machine, or one between two hosts
    Speedtest(SpeedtestArgs),
    /// Explain a command, or the keys of a configuration file (`convoy help config`)
    Help(HelpArgs),
    /// Write man pages and shell completions to DIR, for packages
    #[command(name = documents::COMMAND, hide = true)]
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
    #[command(name = STEP, hide = true)]
    TunnelProcess(TunnelProcessArgs),
    #[cfg(feature = "measure")]
    /// Run the traffic jobs that arrive on standard input
    #[command(name = convoy_perf::speedtest::INSIDE, hide = true)]
    LabInside,
}

#[cfg(test)]
mod tests;
