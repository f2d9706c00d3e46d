//! All peers of a daemon busy at once: rates, CPU time and full batches, beside wireguard-go.

mod crowd;
mod flow;

use std::time::Duration;

use convoy_rows::row::{Row, Run};
use convoy_rows::table::Table;

use crate::tunnel::Contender;
use crowd::{Carried, Crowd, PAYLOAD, Traffic};

pub(super) const LEGEND: &str = "\
Medians, with the lowest and highest value of the rounds in brackets. CPU time is that of both daemons; with busy peers,
of the hub. This sends to all its peers (down) or receives from them (up): UDP with 1,392 bytes of payload, 1 or 32
datagrams for one peer, then for the next. One thread plays all peers. It keeps 1,900 datagrams on the way, so that the
hub works as fast as it can; it counts what the hub sends without opening it, and seals in advance what the hub receives.
Every interface has Convoy's `txqueuelen`.";
/// Begins the names of scenes with busy peers.
const BUSY: &str = "busy peers";

pub(super) const TABLE: Table = Table {
    heading: "By busy peers",
    shows: |row| {
        let is_shown = ["kpps", "CPU ns/packet"].contains(&&row.unit[..]);
        is_shown && row.scene.starts_with(BUSY)
    },
    corner: "busy peers, traffic",
    line: |row| format!("{}{}", row.at.unwrap_or_default(), &row.scene[BUSY.len()..]),
    column: |row| {
        format!(
            "{}: {}",
            row.contender.replace("wireguard-go", "wg-go"),
            row.unit
        )
    },
    has_spread: false,
};

/// A hub that is the bottleneck keeps the thread waiting for more than this share of the time.
const WAITS: f64 = 0.01;

/// Single datagrams are the worst case for batches; TCP and QUIC send trains.
const TRAFFIC: [(bool, usize); 4] = [(false, 1), (false, 32), (true, 1), (true, 32)];

/// Starts a daemon with this many peers and measures each kind of traffic for `window`.
pub(super) fn measure(
    contender: &Contender,
    peers: u32,
    window: Duration,
    round: u32,
    run: &mut Run,
) -> anyhow::Result<()> {
    let mut crowd = Crowd::start(&contender.implementation(), peers)?;
    for (is_up, train) in TRAFFIC {
        let Carried { flow, cpu, calls } = crowd.measure(Traffic { is_up, train }, window)?;
        let (packets, seconds) = (flow.arrived as f64, flow.time.as_secs_f64());
        let waited = flow.waited.as_secs_f64() / seconds;
        let kpps = packets / seconds / 1e3;
        let way = if is_up { "up" } else { "down" };
        for (figure, value) in [
            (("", "kpps"), kpps),
            (("", "Gbit/s"), kpps * PAYLOAD as f64 * 8.0 / 1e6),
            (("", "CPU ns/packet"), cpu.as_nanos() as f64 / packets),
            (("", "packets/call"), packets / calls as f64),
            (("lost", "share"), 1.0 - packets / flow.sent as f64),
            (("waited for the hub", "share"), waited),
        ] {
            let scene = format!("{BUSY}, {way}, {train} each");
            let row = Row::new(&scene, &contender.name, figure, round, value);
            run.push(row.at(peers.into()).limited(waited <= WAITS));
        }
    }
    Ok(())
}
