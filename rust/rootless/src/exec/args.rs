//! The command line of `convoy exec`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use convoy_metrics::DaemonArgs;

const AFTER_HELP: &str = "\
Examples:
  convoy exec ./office.conf -- firefox          a browser that sees only the tunnel
  convoy exec ./office.conf -- curl https://example.org
  convoy exec ./office.conf -- sh               a shell: what it starts sees only the tunnel, too
  convoy exec office -- ping 10.8.0.1           another command in the running tunnel `office`,
                                                also one of `convoy up --userspace`

Needs no root. The command keeps its user, working directory, terminal, signals and exit status. Its network has \
nothing but the tunnel, and the name servers of the key DNS. If the tunnel dies, the command has no network until \
the tunnel is back; it never has the host's. When the command ends, what it has sent is delivered for at most ten \
seconds, and everything that it left running inside is ended. No kill switch is needed: KillSwitch and AllowLAN have \
no effect.

What the command asks a program outside to do leaves outside the tunnel. Such programs are a tmux or screen server \
that already runs, a shared ssh connection (ControlMaster), gpg's agent and dirmngr, and a browser that is already \
open. The sockets of D-Bus, systemd, gpg, docker, podman and similar services are hidden, at their usual places and \
where XDG_RUNTIME_DIR, DBUS_SESSION_BUS_ADDRESS, DOCKER_HOST and CONTAINER_HOST name them. Other sockets, below /tmp \
or the home directory, are not.

These cannot work: programs that need more rights than the caller has, such as sudo, su or pkexec; services that are \
reached by D-Bus; io_uring; sockets other than those of IPv4, IPv6, netlink and Unix; networking of 32-bit programs \
for x86.

Hooks do not run, and ExcludedIPs has no effect. The tunnel's MTU is that of the file, or else 1420. Of the caller's \
open descriptors, the command gets only the standard streams.

Needs user namespaces and a /dev/net/tun that the user may open; if one is missing, an error says which, and how to \
get it.

Exit status:
  125  the tunnel could not be brought up
  126  the command cannot be executed
  127  the command is not found
  otherwise, that of the command; 128 + N in a shell if signal N has ended it";

/// Too long for the names of interfaces, so that it cannot hide one.
pub const EXEC_SUPERVISOR: &str = "exec-supervisor-process";

/// The arguments of `convoy exec`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("foreground", |arg| arg.hide(true)))]
#[command(mut_arg("metrics", |arg| arg.hide(true)))]
#[command(mut_arg("metrics_token_file", |arg| arg.hide(true)))]
pub struct ExecArgs {
    /// A configuration file, or NAME of a running tunnel without root, else of /etc/wireguard/NAME.conf
    #[arg(value_name = "FILE|NAME")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// The arguments of the hidden `convoy exec-supervisor-process`.
#[derive(Debug, Args)]
pub struct ExecSupervisorArgs {
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
