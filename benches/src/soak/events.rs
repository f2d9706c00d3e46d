//! Changes of the hub and of the cables while the load runs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use convoy_lab::wireguard::End;
use serde::{Deserialize, Serialize};

use super::bed::{Bed, CABLE, PORT, SPOKES};
use super::flow::Load;

/// Each minute has one event of every kind, at these seconds of it.
const SECONDS: [(u64, Kind); 3] = [(10, Kind::Port), (30, Kind::Flap), (50, Kind::Syncconf)];
/// No event begins this shortly before the end, in seconds.
const LAST: u64 = 8;
/// Ports that the hub takes one after the other, from [`PORT`] on.
const PORTS: u16 = 100;
/// How long a cable is out, and how long a peer is away.
const OUTAGE: Duration = Duration::from_secs(2);
const ABSENCE: Duration = Duration::from_secs(1);

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The hub listens on another port.
    Port,
    /// The cable of a spoke is out.
    Flap,
    /// `wg syncconf` takes a peer from the hub and gives it back.
    Syncconf,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) from_s: f64,
    pub(super) until_s: f64,
    pub(super) kind: Kind,
    /// None where all spokes are concerned.
    pub(super) spoke: Option<u8>,
    /// Why it could not be done.
    pub(super) error: Option<String>,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Port => "port change",
            Self::Flap => "flap",
            Self::Syncconf => "syncconf",
        }
    }
}

/// The second, the kind and the spoke, counted from 0, of each event in a run of `secs` seconds; another spoke
/// is concerned in each minute.
pub(super) fn schedule(secs: u64) -> Vec<(u64, Kind, usize)> {
    let events = (0..=secs / 60).flat_map(|minute| {
        SECONDS.map(move |(second, kind)| {
            // A spoke does not lose its cable and its sessions in the same minute.
            let shift = u64::from(kind == Kind::Syncconf) * SPOKES.len() as u64 / 2;
            let spoke = (minute + shift) % SPOKES.len() as u64;
            (minute * 60 + second, kind, spoke as usize)
        })
    });
    events.filter(|(at, _, _)| at + LAST < secs).collect()
}

/// Makes every change in its time, until the load ends.
pub(super) fn carry_out(bed: &Bed, load: &Load, secs: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut port = PORT;
    for (at, kind, spoke) in schedule(secs) {
        while load.now() < at as f64 {
            load.sleep_until((at as f64).min(load.now() + 0.25));
            if load.has_ended() {
                return events;
            }
        }
        let from_s = load.now();
        let outcome = match kind {
            Kind::Port => {
                port = PORT + (port + 1 - PORT) % PORTS;
                change_port(&bed.hub, port)
            }
            Kind::Flap => flap(&bed.spokes[spoke]),
            Kind::Syncconf => syncconf(&bed.hub, port, spoke, 25 + (at / 60 % 2) as u16),
        };
        let event = Event {
            from_s,
            until_s: load.now(),
            kind,
            spoke: (kind != Kind::Port).then_some(SPOKES[spoke]),
            error: outcome.err().map(|error| format!("{error:#}")),
        };
        let spoke = event
            .spoke
            .map_or(String::new(), |spoke| format!(", spoke {spoke}"));
        let failed = event
            .error
            .as_ref()
            .map_or(String::new(), |error| format!(" failed: {error}"));
        println!("{from_s:7.1} s  {}{spoke}{failed}", kind.name());
        events.push(event);
    }
    events
}

/// Makes the hub listen on another port; the spokes hear from it there, and follow.
fn change_port(hub: &End, port: u16) -> anyhow::Result<()> {
    wg(hub, "set", &["listen-port", &port.to_string()], "")?;
    Ok(hub.daemon.wait_until_listening(port)?)
}

/// Takes the cable of a spoke out and puts it back.
fn flap(spoke: &End) -> anyhow::Result<()> {
    spoke.namespace.link().set_down(CABLE)?;
    thread::sleep(OUTAGE);
    Ok(spoke.namespace.link().set_up(CABLE)?)
}

/// Takes a peer from the hub by `wg syncconf`, and gives it back by another; the keepalive interval of all
/// peers changes with it.
fn syncconf(hub: &End, port: u16, spoke: usize, keepalive: u16) -> anyhow::Result<()> {
    let sync = |without| {
        let text = configuration(hub, port, keepalive, without);
        wg(hub, "syncconf", &["/dev/stdin"], &text).map(drop)
    };
    sync(Some(spoke))?;
    thread::sleep(ABSENCE);
    sync(None)
}

/// The output of `wg show IFACE latest-handshakes` at the hub.
pub(super) fn latest_handshakes(hub: &End) -> anyhow::Result<String> {
    wg(hub, "show", &["latest-handshakes"], "")
}

/// A configuration as of wg(8).
fn configuration(hub: &End, port: u16, keepalive: u16, without: Option<usize>) -> String {
    let key = BASE64_STANDARD.encode(hub.config.private_key);
    let mut text = format!("[Interface]\nPrivateKey = {key}\nListenPort = {port}\n");
    let peers = hub.config.peers.iter().enumerate();
    for (_, peer) in peers.filter(|(number, _)| Some(*number) != without) {
        let key = BASE64_STANDARD.encode(peer.public_key);
        let allowed = peer.allowed_ips.join(", ");
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "[Peer]\nPublicKey = {key}\nAllowedIPs = {allowed}\nPersistentKeepalive = {keepalive}"
        );
        if let Some(endpoint) = peer.endpoint {
            let _ = writeln!(text, "Endpoint = {endpoint}");
        }
    }
    text
}

/// Runs `wg COMMAND IFACE` at the hub and returns what it printed.
fn wg(hub: &End, command: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = hub
        .namespace
        .command("wg")
        .args([command, hub.daemon.interface()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start wg (fix: apt-get install wireguard-tools)")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context("write to wg")?;
    }
    let output = child.wait_with_output().context("wait for wg")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "wg {command}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_every_kind_once_and_every_spoke_is_concerned() {
        let schedule = schedule(600);
        assert_eq!(schedule.len(), 30);
        for (_, kind) in SECONDS {
            let of_kind: Vec<_> = schedule.iter().filter(|(_, it, _)| *it == kind).collect();
            assert!(of_kind.iter().map(|(at, _, _)| at / 60).eq(0..10));
            assert!((0..4).all(|spoke| of_kind.iter().any(|(_, _, it)| *it == spoke)));
        }
    }

    #[test]
    fn no_event_begins_shortly_before_the_end() {
        let count = |secs| schedule(secs).len();
        assert_eq!((count(38), count(39), count(71)), (1, 2, 3));
    }
}
