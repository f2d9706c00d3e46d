//! The switches of the daemon. Each can also be set in the environment, for use with wg-quick.

use std::{collections::BTreeMap, str::FromStr};

use clap::{
    ArgAction, Args, ValueEnum,
    builder::{
        BoolishValueParser, FalseyValueParser, PossibleValue, PossibleValuesParser,
        TypedValueParser,
    },
};
use convoy_aead::Aead;
use convoy_process::{logging::LogFormat, message::Message};
use convoy_tun::Switch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Switches of the daemon; `M` are those of its metrics.
#[derive(Clone, Debug, Args)]
pub struct DaemonArgs<M: Args> {
    /// Stay in the foreground
    #[arg(short, long, env = "WG_PROCESS_FOREGROUND", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub foreground: bool,

    /// Options of its data path and its log.
    #[command(flatten)]
    pub options: TunnelOptions,

    /// Switches of its metrics.
    #[command(flatten)]
    pub metrics: M,
}

/// Options of a process that carries packets. Its supervisor passes them on as they are.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelOptions {
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
}

impl Message for TunnelOptions {
    /// Longest message with a tunnel's options, in bytes.
    const MAX_BYTES: usize = 4 << 10;
}

impl TunnelOptions {
    /// Returns the switches that mean these options, for another version of the program.
    ///
    /// # Errors
    /// If one has no text.
    pub fn switches(&self) -> serde_json::Result<Vec<String>> {
        let options: BTreeMap<String, Value> = serde_json::from_value(serde_json::to_value(self)?)?;
        let switches = options.into_iter().map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("--{}={text}", name.replace('_', "-"))
        });
        Ok(switches.collect())
    }
}

/// The implementation that seals and opens packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Command line of a daemon.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: TunnelOptions,
    }

    #[test]
    fn options_survive_their_way_to_another_process_and_to_another_version() {
        let given = [
            "convoy",
            "--gso=off",
            "--tun-offload=on",
            "--udp-gro=off",
            "--aead=ring",
            "--batch=7",
            "--clamp-mss=on",
            "--log-format=json",
        ];
        let Line { options } = Line::parse_from(given);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<TunnelOptions>(&text).unwrap(),
            options
        );
        let switches = options.switches().unwrap();
        assert_eq!(switches.len(), given.len() - 1);
        let line = ["convoy".to_owned()].into_iter().chain(switches);
        assert_eq!(Line::parse_from(line).options, options);
        let newer = text.replacen('{', "{\"faster\":true,", 1);
        let error = serde_json::from_str::<TunnelOptions>(&newer).unwrap_err();
        assert!(error.to_string().contains("`faster`"), "{error}");
    }
}
