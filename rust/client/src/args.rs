//! The command line of the client: `convoy up` and its companions.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use convoy_lifecycle::LONGEST_PAUSE;
use convoy_metrics::DaemonArgs;
use convoy_rootless::args::UserspaceArgs;

const UP_AFTER_HELP: &str = "\
Examples:
  convoy up wg0                    bring up /etc/wireguard/wg0.conf
  convoy up ./office.conf          bring up a file; the interface is named after it: office
  convoy up --adopt wg0            adopt it from wg-quick
  convoy up -f wg0                 stay in the foreground and log there, as under a service manager
  convoy status wg0                see what is up and what is wrong
  convoy down wg0                  put everything back
  convoy up ./office.conf --userspace -L 8080:intranet.example:80 --socks5 1080
                                   without root: ports of this host that lead into the tunnel

FILE is a file of wg-quick(8); `convoy check FILE` shows what is wrong with one. Keys that wg-quick lacks stand in \
comments, which it skips.

Keys in comments:
  in [Interface]   #convoy: KillSwitch = on          drop what would leave outside the tunnel
                   #convoy: AllowLAN = yes           but leave the local network reachable
                   #convoy: ExcludedIPs = local      keep the local network outside the tunnel
                   #convoy: PrivateKeyFile = key     take the key from a file, or from a credential
                   #convoy: Forward = 8080:host:80   the same as -L (see `convoy help config`)
  in [Peer]        #convoy: Endpoints = b.example:1  try further endpoints, in this order

Hooks (PreUp, PostUp, PreDown, PostDown) run in bash, or in sh if there is no bash. They run only if nobody but root \
and the caller can write to the file and to each directory above it. A hook that takes more than 60 seconds is \
ended, with everything that it started.

`up` gives the tunnel what the file says. Changes by `wg set` last until `down`, even if either process dies or is \
replaced, unless `reload` finds that the file changes the same. With SaveConfig, `down` writes them to the \
file; if the file was edited meanwhile, to NAME.conf.saved beside it.

Without a network, `up` succeeds after five seconds; names are looked up once there is one.

On SIGUSR2 the supervisor becomes the version that is installed now, without a gap in kill switch and routes, if \
that version accepts the configuration; otherwise the present one carries on. The Debian package does so in an \
upgrade.

With --userspace, the tunnel has its network in a namespace of the caller's own. The host's network stays as it is, \
so routes, kill switch, ExcludedIPs and hooks have no effect. It needs user namespaces and a /dev/net/tun that the \
user may open; if one is missing, an error says which, and how to get it. If the tunnel's process dies, connections \
wait until another one has started. SIGUSR1 to the supervisor logs the counters of each listener, which `convoy \
status` shows. `reload`, `pause`, `events` and `capture` work only with tunnels that root has brought up.

Exit status:
  0  the tunnel is up
  1  it is not, and everything has been undone; a tunnel that was up before carries on, and a kill
     switch that was closed stays closed
  2  the command line is wrong";

const DOWN_AFTER_HELP: &str = "\
Examples:
  convoy down wg0                      take the tunnel down and put everything back
  convoy down --all                    take down everything, also what a crash or power cut left
  convoy down wg0 --open-kill-switch   and remove a kill switch that is `persistent`

It works without a supervisor, too: whatever a killed process left is undone.

Exit status:
  0  everything has been put back
  1  the tunnel is not up, or something could not be put back
  2  the command line is wrong";

const RELOAD_AFTER_HELP: &str = "\
Example:
  convoy reload wg0    apply the changes in its file and in the folder wg0.d beside it

Peers that have not changed keep their sessions. If the new configuration has errors, nothing changes. Hooks do not \
run. SIGHUP to the supervisor does the same.

Exit status:
  0  the new configuration is in effect
  1  it is not, and nothing has changed
  2  the command line is wrong";

const STATUS_AFTER_HELP: &str = "\
Examples:
  convoy status            show all tunnels
  convoy status wg0        show one
  convoy status --rates    add what each peer receives and sends within a second
  convoy status --watch    show all as they change, until `q` is pressed
  convoy status --json     show all as one line of JSON, by the schema of `convoy status --schema`

Exit status:
  0  the tunnel is up; without NAME, at least one is
  1  its state cannot be read; without NAME, that of at least one, and the others are shown
  2  the command line is wrong
  3  it is not up; without NAME, none is";

const EVENTS_AFTER_HELP: &str = "\
Examples:
  convoy events            print what happens to all tunnels, until interrupted
  convoy events wg0        print what happens to one, also when it comes up later
  convoy events --json     print an object a line, by the schema of `convoy events --schema`

Events: a tunnel comes up, goes down or gets another configuration; a peer is up, down or has moved; the network has \
changed; the kill switch opens or closes; a pause begins or ends; a process has died or was restarted. A peer is up \
once a handshake was answered, and down if none was for three minutes, or after 20 attempts.

Up to 8 programs can follow a tunnel. One that falls behind loses events and learns how many.";

const PAUSE_AFTER_HELP: &str = "\
Examples:
  convoy pause wg0             log in to the network of a hotel or train
  convoy pause wg0 --for 2m    the same, for two minutes
  convoy resume wg0            close it earlier

During a pause, packets leave outside the tunnel: kill switch, default route and name servers are those of the host. \
The tunnel itself stays up, and everything comes back by itself. So does the kill switch if the supervisor dies \
meanwhile, as the kernel closes it. Time that the machine sleeps counts.";

/// The arguments of `convoy up`.
#[derive(Debug, Args)]
#[command(after_help = UP_AFTER_HELP)]
// A client carries the packets of hosts that cannot know the tunnel's MTU.
#[command(mut_arg("clamp_mss", |arg| arg.default_value("on")))]
pub struct UpArgs {
    /// A configuration file, or NAME for /etc/wireguard/NAME.conf
    #[arg(value_name = "FILE|NAME")]
    pub file: PathBuf,

    /// Switches of the tunnel's daemon.
    #[command(flatten)]
    pub daemon: DaemonArgs,

    /// Adopt the interface if wg-quick has set it up
    ///
    /// `wg-quick down` takes it down first; a kill switch closes before that. Nothing is adopted from
    /// NetworkManager or systemd-networkd, which would bring the interface up again.
    #[arg(long)]
    pub(crate) adopt: bool,

    /// Switches of a tunnel without root.
    #[command(flatten)]
    pub userspace: UserspaceArgs,

    /// Close a persistent kill switch, as at boot before there is a network; do nothing else
    #[arg(long, hide = true, conflicts_with = "userspace")]
    pub(crate) only_kill_switch: bool,
}

/// The arguments of `convoy down`.
#[derive(Debug, Args)]
#[command(after_help = DOWN_AFTER_HELP)]
pub struct DownArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE", required_unless_present = "all")]
    pub(crate) name: Option<PathBuf>,

    /// Take down all tunnels, and undo what killed ones left
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,

    /// Remove a persistent kill switch, too
    #[arg(long)]
    pub(crate) open_kill_switch: bool,

    /// Only if the supervisor has died: undo everything but the kill switch, as a service manager does
    #[arg(long, hide = true, conflicts_with_all = ["all", "open_kill_switch"])]
    pub(crate) after_crash: bool,
}

/// The arguments of `convoy reload`.
#[derive(Debug, Args)]
#[command(after_help = RELOAD_AFTER_HELP)]
pub struct ReloadArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: PathBuf,
}

/// The arguments of `convoy status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_AFTER_HELP)]
pub struct StatusArgs {
    /// The interface, or its configuration file; all if absent
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<PathBuf>,

    /// Print one line of JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Look twice, a second apart, and show each peer's rate
    #[arg(long)]
    pub(crate) rates: bool,

    /// Show what changes each second, on a terminal: rates, peers, batch sizes, drops
    #[arg(long, conflicts_with_all = ["json", "rates", "schema"])]
    pub(crate) watch: bool,

    /// Print the JSON Schema of what --json prints; do nothing else
    #[arg(long)]
    pub(crate) schema: bool,
}

/// The arguments of `convoy events`.
#[derive(Debug, Args)]
#[command(after_help = EVENTS_AFTER_HELP)]
pub struct EventsArgs {
    /// The interface, or its configuration file; all if absent
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: Option<PathBuf>,

    /// Print one line of JSON per event instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the JSON Schema of the lines that --json prints; do nothing else
    #[arg(long)]
    pub(crate) schema: bool,
}

/// The arguments of `convoy pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE_AFTER_HELP)]
pub struct PauseArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: PathBuf,

    /// How long, such as 90s, 5m or 1h30m; a day at most
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) time: Duration,
}

/// The arguments of `convoy resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The interface, or its configuration file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) name: PathBuf,
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 5m or 1h30m".to_owned();
    let time: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let time = Duration::try_from(time).map_err(|_| wrong())?;
    match time.as_secs() {
        0 => Err("the time is a second at least".to_owned()),
        _ if time > LONGEST_PAUSE => Err("the time is a day at most".to_owned()),
        _ => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_written_as_people_write_times() {
        let seconds = |text| time(text).map(|time| time.as_secs());
        for (text, expected) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("24h", 86400)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "5", "-5m", "0s", "25h", "soon", "10ms"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
