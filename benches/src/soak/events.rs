//! Events at the hub and the cables while the load runs.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use convoy_lab::wireguard::End;
use tempfile::NamedTempFile;

use super::hub::{CABLE, Hub, PORT, SPOKES};
use super::streams::Load;
use crate::programs;

/// Seconds before the end in which no event begins.
const LAST: u64 = 8;
/// Number of ports that the hub uses in turn, starting at [`PORT`].
const PORTS: u16 = 100;
/// Time for which a cable stays unplugged and a peer stays removed.
const OUTAGE: Duration = Duration::from_secs(2);
const ABSENCE: Duration = Duration::from_secs(1);

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name in the rows.
    pub(super) name: &'static str,
    /// Second of each minute at which it begins.
    pub(super) second: u64,
    /// Reasons for which a daemon may then drop packets.
    pub(super) drops: &'static [&'static str],
}

/// The hub switches to another port. Datagrams to the former one are lost.
pub(super) const PORT_CHANGE: Kind = Kind {
    name: "port change",
    second: 10,
    drops: &["outbound_send_failed"],
};
/// A spoke's cable is unplugged. No route leads through it.
pub(super) const FLAP: Kind = Kind {
    name: "flap",
    second: 30,
    drops: PORT_CHANGE.drops,
};
/// `wg syncconf` removes a peer from the hub and restores it. Packets for it, its datagrams and crossing handshakes are
/// lost.
pub(super) const SYNCCONF: Kind = Kind {
    name: "syncconf",
    second: 50,
    drops: &[
        "outbound_no_route",
        "outbound_peer_removed",
        "outbound_held_overflow",
        "inbound_unknown_session",
        "inbound_unknown_peer",
    ],
};
const KINDS: [Kind; 3] = [PORT_CHANGE, FLAP, SYNCCONF];

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) from_s: f64,
    pub(super) until_s: f64,
    pub(super) kind: Kind,
    /// `None` if it affects all spokes.
    pub(super) spoke: Option<u8>,
    pub(super) error: Option<String>,
}

/// Starts every event on schedule until the load ends.
pub(super) fn carry_out(hub: &Hub, load: &Load, secs: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for (at, kind, number) in schedule(secs) {
        if !load.continues_until(at as f64) {
            break;
        }
        let from_s = load.now();
        let outcome = match kind {
            PORT_CHANGE => change_port(&hub.hub, PORT + (1 + at / 60) as u16 % PORTS),
            FLAP => flap(&hub.spokes[number]),
            _ => remove_and_restore(&hub.hub, &hub.spokes[number]),
        };
        let event = Event {
            from_s,
            until_s: load.now(),
            kind,
            spoke: (kind != PORT_CHANGE).then_some(SPOKES[number]),
            error: outcome.err().map(|error| format!("{error:#}")),
        };
        println!("{event:?}");
        events.push(event);
    }
    events
}

/// Second, kind and spoke (counted from 0) of each event; the spoke changes every minute.
fn schedule(secs: u64) -> impl Iterator<Item = (u64, Kind, usize)> {
    let events = (0..=secs / 60).flat_map(|minute| {
        KINDS.map(move |kind| {
            // Within a minute, no spoke loses both its cable and its sessions.
            let shift = if kind == SYNCCONF { 2 } else { 0 };
            let spoke = (minute as usize + shift) % SPOKES.len();
            (minute * 60 + kind.second, kind, spoke)
        })
    });
    events.filter(move |(at, _, _)| at + LAST < secs)
}

/// The spokes follow once they receive from the new port.
fn change_port(hub: &End, port: u16) -> Result<()> {
    wg(hub, "set", &["listen-port", &port.to_string()])?;
    Ok(hub.daemon.wait_until_listening(port)?)
}

fn flap(spoke: &End) -> Result<()> {
    spoke.namespace.link().set_down(CABLE)?;
    thread::sleep(OUTAGE);
    Ok(spoke.namespace.link().set_up(CABLE)?)
}

fn remove_and_restore(hub: &End, peer: &End) -> Result<()> {
    let syncconf = |configuration: &str| -> Result<()> {
        let mut file = NamedTempFile::new()?;
        file.write_all(configuration.as_bytes())?;
        wg(hub, "syncconf", &[&file.path().to_string_lossy()]).map(drop)
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
pub(super) fn wg(hub: &End, command: &str, arguments: &[&str]) -> Result<String> {
    let mut wg = hub.namespace.command("wg");
    wg.args([command, hub.daemon.interface()]).args(arguments);
    programs::output(&mut wg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_every_kind_once_and_no_event_is_shortly_before_the_end() {
        for kind in KINDS {
            let of_kind: Vec<_> = schedule(600).filter(|(_, it, _)| *it == kind).collect();
            assert!(of_kind.iter().map(|(at, _, _)| at / 60).eq(0..10));
            assert!((0..4).all(|spoke| of_kind.iter().any(|(_, _, it)| *it == spoke)));
        }
        assert_eq!([38, 39, 71].map(|secs| schedule(secs).count()), [1, 2, 3]);
    }
}
