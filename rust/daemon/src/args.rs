//! The switches of the daemon. Each can also be set in the environment, for use with wg-quick.

use std::str::FromStr;

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{
        BoolishValueParser, FalseyValueParser, PossibleValue, PossibleValuesParser,
        TypedValueParser,
    },
};
use convoy_aead::Aead;
use convoy_tun::Switch;

use convoy_process::logging::LogFormat;

/// Switches of the daemon; `M` are those of its metrics.
#[derive(Clone, Debug, Args)]
pub struct DaemonArgs<M: Args> {
    /// Stay in the foreground
    #[arg(short, long, env = "WG_PROCESS_FOREGROUND", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub foreground: bool,

    /// Send several datagrams in one call (UDP_SEGMENT)
    #[arg(long, env = "CONVOY_GSO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_parser = switches(), default_value = "auto")]
    pub gso: Switch,

    /// Exchange super-packets with the TUN device (TSO, USO)
    #[arg(long, env = "CONVOY_TUN_OFFLOAD", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_parser = switches(), default_value = "auto")]
    pub tun_offload: Switch,

    /// Receive several datagrams in one call (UDP_GRO)
    #[arg(long, env = "CONVOY_UDP_GRO", hide_env_values = true)]
    #[arg(value_name = "WHEN", value_parser = switches(), default_value = "auto")]
    pub udp_gro: Switch,

    /// Seal and open packets sixteen at a time, or one by one with ring
    #[arg(long, env = "CONVOY_AEAD", hide_env_values = true)]
    #[arg(value_name = "WHICH", value_enum, default_value_t = AeadChoice::Auto)]
    pub aead: AeadChoice,

    /// Most packets in one batch, 1 to 50
    #[arg(long, env = "CONVOY_BATCH", hide_env_values = true)]
    #[arg(value_name = "PACKETS", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=50))]
    pub batch: u8,

    /// Lower the MSS in TCP handshakes to what the interface's MTU carries, in both directions
    ///
    /// For hosts behind the tunnel: where ICMP is filtered, they do not learn that their segments are too
    /// long for it. iptables does the same with TCPMSS --clamp-mss-to-pmtu.
    #[arg(long, env = "CONVOY_CLAMP_MSS", hide_env_values = true)]
    #[arg(value_name = "on|off", default_value = "off", action = ArgAction::Set)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub clamp_mss: bool,

    /// Format of the log, which goes to stdout
    #[arg(long, env = "CONVOY_LOG_FORMAT", hide_env_values = true)]
    #[arg(value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,

    /// Switches of its metrics.
    #[command(flatten)]
    pub metrics: M,
}

/// The implementation that seals and opens packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AeadChoice {
    /// AVX-512 if the CPU has it, otherwise ring
    Auto,
    /// ring
    Ring,
}

/// The name of a daemon's interface: any that the kernel accepts and that is not a path. A configuration file may give
/// fewer ([`convoy_config::InterfaceName`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName(String);

impl DeviceName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
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

/// Parses a [`Switch`] by its name.
fn switches() -> impl TypedValueParser<Value = Switch> {
    let values = Switch::ALL.map(|switch| {
        PossibleValue::new(switch.name()).help(match switch {
            Switch::Auto => "Use it if the kernel supports it",
            Switch::On => "Fail if the kernel does not support it",
            Switch::Off => "Do not use it",
        })
    });
    PossibleValuesParser::new(values).map(|name| {
        let found = Switch::ALL.into_iter().find(|it| it.name() == name);
        found.unwrap_or_default()
    })
}

impl From<AeadChoice> for Aead {
    fn from(choice: AeadChoice) -> Self {
        match choice {
            AeadChoice::Auto => Self::auto(),
            AeadChoice::Ring => Self::ring(),
        }
    }
}
