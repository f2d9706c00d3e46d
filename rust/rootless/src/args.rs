//! The command line of a tunnel without root: the switches of `convoy up --userspace`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use convoy_config::{AccessLists, Forwarding, Listener, Offer, parse_listener, parse_prefix};
use convoy_metrics::args::absolute;
use convoy_proto::config::Prefix;

use crate::forward::args::size;

/// Too long for the names of interfaces, so that it cannot hide one.
pub const NAMESPACE_HOLDER: &str = "namespace-holder";

/// Switches of `convoy up --userspace`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Without root")]
pub struct UserspaceArgs {
    /// Need no root and change nothing on this host: forward ports into and out of the tunnel
    ///
    /// The tunnel belongs to the caller, who ends it with `convoy down`; `convoy exec NAME -- COMMAND` joins it.
    #[arg(long, conflicts_with_all = ["adopt", "metrics"])]
    pub userspace: bool,

    /// Listen on this host, and connect inside; with /udp, for datagrams
    ///
    /// HOST is looked up inside, by the name servers of the key DNS. Without ADDR the listener is on 127.0.0.1 and
    /// ::1; * is every address.
    #[arg(short = 'L', long = "local", requires = "userspace", value_parser = local)]
    #[arg(value_name = "[ADDR:]PORT:HOST:PORT[/udp]")]
    pub(crate) local: Vec<Listener>,

    /// Listen inside the tunnel, and connect from this host
    ///
    /// Without ADDR the listener is on all addresses of the tunnel. Its clients must be in AllowedIPs.
    #[arg(short = 'R', long = "reverse", requires = "userspace", value_parser = reverse)]
    #[arg(value_name = "[ADDR:]PORT:HOST:PORT")]
    pub(crate) reverse: Vec<Listener>,

    /// Serve SOCKS5 on this host, and connect inside, also for UDP
    #[arg(long, requires = "userspace", value_name = "[ADDR:]PORT", value_parser = socks5)]
    pub(crate) socks5: Vec<Listener>,

    /// Serve HTTP's CONNECT on this host, and connect inside
    #[arg(long, requires = "userspace", value_name = "[ADDR:]PORT", value_parser = http_connect)]
    pub(crate) http_connect: Vec<Listener>,

    /// Let only these clients use the listeners of -L, --socks5 and --http-connect
    ///
    /// A listener that other hosts can reach needs this or, if it is a proxy, a password.
    #[arg(
        long,
        requires = "userspace",
        value_name = "PREFIX",
        value_delimiter = ','
    )]
    #[arg(value_parser = parse_prefix)]
    pub(crate) allow: Vec<Prefix>,

    /// Deny these clients; takes precedence over --allow
    #[arg(
        long,
        requires = "userspace",
        value_name = "PREFIX",
        value_delimiter = ','
    )]
    #[arg(value_parser = parse_prefix)]
    pub(crate) deny: Vec<Prefix>,

    /// Require the user:password in the first line of FILE from clients of --socks5 and --http-connect
    #[arg(long, requires = "userspace", value_name = "FILE", value_parser = absolute)]
    pub(crate) login_file: Option<PathBuf>,

    /// Act as a NAT gateway: forward peers' traffic through this user's sockets
    ///
    /// By TCP, UDP and ping, peers reach what this user reaches, but not this host itself, its links or cloud metadata.
    /// Needs no root, and no forwarding on this host; without nft, the slower engine `smoltcp` is used.
    #[arg(long, requires = "userspace", value_name = "HOW", value_enum)]
    pub(crate) nat: Option<NatChoice>,

    /// Let peers reach these targets of --nat, although they are refused by default
    #[arg(
        long,
        requires = "userspace",
        value_name = "PREFIX",
        value_delimiter = ','
    )]
    #[arg(value_parser = parse_prefix)]
    pub(crate) nat_allow: Vec<Prefix>,

    /// Refuse these targets of --nat; takes precedence over --nat-allow
    #[arg(
        long,
        requires = "userspace",
        value_name = "PREFIX",
        value_delimiter = ','
    )]
    #[arg(value_parser = parse_prefix)]
    pub(crate) nat_deny: Vec<Prefix>,

    /// Answer DNS queries that peers send to this end of the tunnel, with this host's resolver
    #[arg(long, requires = "userspace")]
    pub(crate) nat_dns: bool,

    /// The buffer of a connection while bytes move, 8K to 256K [default: 64K]
    #[arg(long, requires = "userspace", value_name = "SIZE", value_parser = size)]
    pub buffer: Option<usize>,

    /// Engine of the network inside
    #[arg(long, requires = "userspace", value_name = "WHICH", value_enum, default_value_t = EngineChoice::Auto)]
    pub(crate) engine: EngineChoice,
}

/// NAT of peers' flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NatChoice {
    /// Through this user's sockets
    User,
    /// None, even if the file enables it
    Off,
}

/// Engine of the network inside a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// The first that works here
    Auto,
    /// The kernel's network, in a namespace of the user
    Namespace,
    /// A network in this program: slower, for where namespaces or TUN devices are forbidden
    Smoltcp,
}

impl UserspaceArgs {
    /// The listeners, and who may use them.
    ///
    /// # Errors
    /// Why the file with the password cannot be used.
    pub fn forwarding(&self) -> Result<Forwarding, String> {
        let lists = [&self.local, &self.reverse, &self.socks5, &self.http_connect];
        let mut listeners: Vec<_> = lists.into_iter().flatten().cloned().collect();
        if let Some(file) = &self.login_file {
            let login = convoy_config::read_login(file)?;
            for listener in &mut listeners {
                if matches!(listener.offer, Offer::Socks5 | Offer::HttpConnect) {
                    listener.login = Some(login.clone());
                }
            }
        }
        let access = AccessLists {
            allow: self.allow.clone(),
            deny: self.deny.clone(),
        };
        Ok(Forwarding::new(listeners, access))
    }
}

fn local(text: &str) -> Result<Listener, String> {
    match text.strip_suffix("/udp") {
        Some(rest) => parse_listener("ForwardUDP", rest),
        None => parse_listener("Forward", text),
    }
}

fn reverse(text: &str) -> Result<Listener, String> {
    parse_listener("Reverse", text)
}

fn socks5(text: &str) -> Result<Listener, String> {
    parse_listener("Socks5", text)
}

fn http_connect(text: &str) -> Result<Listener, String> {
    parse_listener("HttpConnect", text)
}
