//! `convoy status`: what is up, and what is wrong.

mod text;

use std::{
    collections::HashMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use convoy_config::{Config, InterfaceName, encode_key};
use convoy_proto::config::PublicKey;
use serde::{Deserialize, Serialize};

use super::{
    control::{AskError, Reply, Request, ask},
    places,
    state::State,
    tunnel::{self, RunningDevice, RunningPeer},
};
use crate::cli::StatusArgs;

/// As of `systemctl status`.
const NOT_UP: u8 = 3;

/// The output of `convoy status --json`. All times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Statuses {
    pub(crate) interfaces: Vec<Status>,
}

/// One tunnel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) state: Condition,
    /// Its file.
    pub(crate) config: Option<PathBuf>,
    pub(crate) since: Option<u64>,
    /// When a pause ends.
    pub(crate) paused_until: Option<u64>,
    pub(crate) supervisor_pid: Option<u32>,
    pub(crate) tunnel_pid: Option<u32>,
    /// In bytes.
    pub(crate) mtu: Option<u32>,
    pub(crate) listen_port: u16,
    /// 0 for none.
    pub(crate) fwmark: u32,
    /// `off`, `on` or `persistent`.
    pub(crate) kill_switch: Option<String>,
    /// Name servers.
    pub(crate) dns: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) peers: Vec<PeerStatus>,
}

/// Whether a tunnel is as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Condition {
    #[default]
    #[serde(rename = "up")]
    Up,
    #[serde(rename = "paused")]
    Paused,
    /// Its supervisor has died.
    #[serde(rename = "without supervisor")]
    WithoutSupervisor,
}

/// One peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerStatus {
    /// In base64.
    pub(crate) public_key: String,
    /// `# friendly_name`
    pub(crate) name: Option<String>,
    /// The address in use.
    pub(crate) endpoint: Option<String>,
    /// What is wrong, in words.
    pub(crate) problem: Option<String>,
    /// `None` if there was none.
    pub(crate) latest_handshake: Option<u64>,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) allowed_ips: Vec<String>,
    /// In seconds; 0 for none.
    pub(crate) persistent_keepalive: u16,
}

/// Prints the status of one tunnel, or of all.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let names = match &args.name {
        Some(name) => vec![places::name_of(name)?],
        None => places::all(),
    };
    let mut interfaces = Vec::new();
    for name in &names {
        interfaces.extend(status(name)?);
    }
    let is_up = !interfaces.is_empty();
    let statuses = Statuses { interfaces };
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string(&statuses)?)?;
    } else {
        let text = text::render(&statuses, jiff::Timestamp::now());
        stdout.write_all(text.as_bytes())?;
    }
    if is_up {
        return Ok(ExitCode::SUCCESS);
    }
    crate::panics::say(&match args.name {
        Some(_) => format!("convoy: {} is not up", names[0]),
        None => "convoy: no tunnel is up".to_owned(),
    });
    Ok(ExitCode::from(NOT_UP))
}

/// The status of one tunnel; `None` if it is not up.
fn status(name: &InterfaceName) -> anyhow::Result<Option<Status>> {
    match ask(&places::control(name), &Request::Status) {
        Ok(Reply::Status(status)) => Ok(Some(*status)),
        Ok(Reply::Failed { reason }) => bail!("{name}: {reason}"),
        Ok(Reply::Done { .. }) => bail!("{name}: the supervisor's answer is no status"),
        Err(AskError::NoSupervisor) => without_supervisor(name),
        Err(error) => Err(error).with_context(|| name.to_string()),
    }
}

/// The status of a tunnel whose supervisor has died, as far as the tunnel itself knows it.
fn without_supervisor(name: &InterfaceName) -> anyhow::Result<Option<Status>> {
    if !tunnel::path(name).exists() {
        return Ok(None);
    }
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    let Ok(device) = runtime.block_on(tunnel::running_device(name)) else {
        return Ok(None);
    };
    let state = State::read(name);
    Ok(Some(Status {
        name: name.to_string(),
        state: Condition::WithoutSupervisor,
        since: state.as_ref().map(|state| state.since),
        config: state.map(|state| state.config),
        warnings: vec![format!(
            "its supervisor has died, so nothing follows the network: `convoy up {name}` takes it over, \
             `convoy down {name}` takes it down"
        )],
        ..of_device(&device, None, &HashMap::new())
    }))
}

/// What the tunnel knows, and what its configuration and the look-ups of names add.
pub(crate) fn of_device(
    device: &RunningDevice,
    config: Option<&Config>,
    problems: &HashMap<PublicKey, String>,
) -> Status {
    let configured = config.into_iter().flat_map(|config| &config.peers);
    let names = configured.filter_map(|peer| {
        let name = peer.friendly_name.as_deref()?;
        Some((peer.public_key.value, name))
    });
    let names: HashMap<_, _> = names.collect();
    let peer = |peer: &RunningPeer| {
        let key = &peer.public_key;
        let name = names.get(key).map(|name| (*name).to_owned());
        of_peer(peer, name, problems.get(key).cloned())
    };
    Status {
        listen_port: device.listen_port,
        fwmark: device.fwmark,
        peers: device.peers.iter().map(peer).collect(),
        ..Status::default()
    }
}

fn of_peer(peer: &RunningPeer, name: Option<String>, problem: Option<String>) -> PeerStatus {
    let allowed = peer.allowed_ips.iter();
    PeerStatus {
        public_key: encode_key(&peer.public_key.0).as_str().to_owned(),
        name,
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        problem,
        latest_handshake: peer.last_handshake.map(seconds),
        rx_bytes: peer.rx_bytes,
        tx_bytes: peer.tx_bytes,
        allowed_ips: allowed
            .map(|network| format!("{}/{}", network.address, network.prefix))
            .collect(),
        persistent_keepalive: peer.persistent_keepalive,
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

/// A line for service managers.
pub(crate) fn line(path: &Path, condition: Condition) -> String {
    let path = path.display();
    match condition {
        Condition::Up => format!("up with {path}"),
        Condition::Paused => format!("paused: packets leave outside the tunnel ({path})"),
        Condition::WithoutSupervisor => format!("without a supervisor ({path})"),
    }
}
