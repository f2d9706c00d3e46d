//! Changes of the hub and of the cables while the load runs.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use convoy_lab::wireguard::End;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::hub::{CABLE, Hub, PORT, SPOKES};
use super::streams::Load;
use crate::programs;

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
    /// `wg syncconf` removes a peer from the hub and restores it.
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

/// Makes every change in its time, until the load ends.
pub(super) fn carry_out(hub: &Hub, load: &Load, secs: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for (at, kind, number) in schedule(secs) {
        if !load.continues_until(at as f64) {
            break;
        }
        let from_s = load.now();
        let outcome = match kind {
            Kind::Port => change_port(&hub.hub, PORT + (1 + at / 60) as u16 % PORTS),
            Kind::Flap => flap(&hub.spokes[number]),
            Kind::Syncconf => remove_and_restore(&hub.hub, &hub.spokes[number]),
        };
        let event = Event {
            from_s,
            until_s: load.now(),
            kind,
            spoke: (kind != Kind::Port).then_some(SPOKES[number]),
            error: outcome.err().map(|error| format!("{error:#}")),
        };
        println!("{event:?}");
        events.push(event);
    }
    events
}

/// The second, the kind and the spoke, counted from 0, of each event; each minute concerns another spoke.
fn schedule(secs: u64) -> impl Iterator<Item = (u64, Kind, usize)> {
    let events = (0..=secs / 60).flat_map(|minute| {
        SECONDS.map(move |(second, kind)| {
            // A spoke does not lose its cable and its sessions in the same minute.
            let shift = if kind == Kind::Syncconf { 2 } else { 0 };
            let spoke = (minute as usize + shift) % SPOKES.len();
            (minute * 60 + second, kind, spoke)
        })
    });
    events.filter(move |(at, _, _)| at + LAST < secs)
}

/// Makes the hub listen on another port; the spokes hear from it there, and follow.
fn change_port(hub: &End, port: u16) -> anyhow::Result<()> {
    wg(hub, "set", &["listen-port", &port.to_string()])?;
    Ok(hub.daemon.wait_until_listening(port)?)
}

/// Unplugs the cable of a spoke for a while.
fn flap(spoke: &End) -> anyhow::Result<()> {
    spoke.namespace.link().set_down(CABLE)?;
    thread::sleep(OUTAGE);
    Ok(spoke.namespace.link().set_up(CABLE)?)
}

/// Removes a peer from the hub for a while.
fn remove_and_restore(hub: &End, peer: &End) -> anyhow::Result<()> {
    let syncconf = |configuration: &str| -> anyhow::Result<()> {
        let mut file = NamedTempFile::new()?;
        file.write_all(configuration.as_bytes())?;
        wg(hub, "syncconf", &[&file.path().to_string_lossy()])?;
        Ok(())
    };
    let with = wg(hub, "showconf", &[])?;
    let key = peer.keys.public_base64();
    let mut sections: Vec<_> = with.split("[Peer]").collect();
    sections.retain(|section| !section.contains(&key));
    syncconf(&sections.join("[Peer]"))?;
    thread::sleep(ABSENCE);
    syncconf(&with)
}

/// Runs `wg COMMAND IFACE` at the hub and returns its output.
pub(super) fn wg(hub: &End, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut wg = hub.namespace.command("wg");
    wg.args([command, hub.daemon.interface()]).args(arguments);
    programs::output(&mut wg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_every_kind_once_and_no_event_is_shortly_before_the_end() {
        for (_, kind) in SECONDS {
            let of_kind: Vec<_> = schedule(600).filter(|(_, it, _)| *it == kind).collect();
            assert!(of_kind.iter().map(|(at, _, _)| at / 60).eq(0..10));
            assert!((0..4).all(|spoke| of_kind.iter().any(|(_, _, it)| *it == spoke)));
        }
        assert_eq!([38, 39, 71].map(|secs| schedule(secs).count()), [1, 2, 3]);
    }
}
