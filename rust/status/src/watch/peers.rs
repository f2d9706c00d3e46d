//! The list of peers, and of those that are met through them.

use convoy_process::printable;
use convoy_report::{DataPath, DirectPeer, PeerState, PeerStatus, Status};
use convoy_stats::{
    binary,
    direct::{milliseconds, reason},
};
use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Text},
    widgets::{Block, Borders, Cell, Row, Table},
};

use crate::text::words::until_now;

/// Characters of a key without a name.
const KEY_CHARACTERS: usize = 8;

/// Above the peers.
const HEADER_LINES: u16 = 2;

/// Draws the list from row `top` on; returns the first row that is shown.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    status: &Status,
    top: usize,
    now: Timestamp,
) -> usize {
    let room = usize::from(area.height.saturating_sub(HEADER_LINES));
    let peers = &status.peers;
    let of_outer = status.via.iter().flat_map(|via| {
        let below = via.peers.iter().map(Entry::Peer);
        std::iter::once(Entry::Through(&via.name)).chain(below)
    });
    let all: Vec<_> = peers.iter().flat_map(entries).chain(of_outer).collect();
    let top = top.min(all.len().saturating_sub(room));
    let last = (top + room).min(all.len());
    let connected = peers.iter().filter(|it| it.state == PeerState::Connected);
    let title = format!(
        " Peers: {} connected of {} ",
        connected.count(),
        peers.len()
    );
    let mut block = Block::new().borders(Borders::TOP).title(title);
    if last - top < all.len() {
        let shown = format!(" {}–{last} ", top + 1);
        block = block.title_top(Line::from(shown).right_aligned());
    }
    let header = ["peer", "state", "endpoint", "seen", "received/s", "sent/s"];
    let header = header
        .into_iter()
        .enumerate()
        .map(|(column, name)| match column {
            0 => Text::from(format!(" {name}")),
            1 | 2 => Text::from(name),
            _ => Text::from(name).right_aligned(),
        });
    let rows = all[top..last].iter().map(|entry| match entry {
        Entry::Peer(peer) => row(peer, now),
        Entry::Direct(direct) => direct_row(direct),
        Entry::Through(name) => Row::new([" through", name]).dim(),
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(14),
        Constraint::Fill(2),
        Constraint::Length(5),
        Constraint::Length(11),
        Constraint::Length(11),
    ];
    let table = Table::new(rows, widths);
    let table = table.header(Row::new(header).dim()).block(block);
    frame.render_widget(table, area);
    top
}

/// Fills one row.
enum Entry<'a> {
    Peer(&'a PeerStatus),
    Direct(&'a DirectPeer),
    /// Stands above the peers of the tunnel of this name, through which this one goes.
    Through(&'a str),
}

/// A peer, and below it those that are met through it.
fn entries(status: &PeerStatus) -> impl Iterator<Item = Entry<'_>> {
    let directs = status.peer.direct.iter().map(Entry::Direct);
    std::iter::once(Entry::Peer(status)).chain(directs)
}

fn row(status: &PeerStatus, now: Timestamp) -> Row<'static> {
    let peer = &status.peer;
    let name = status.name.clone().unwrap_or_else(|| {
        let key: String = peer.public_key.chars().take(KEY_CHARACTERS).collect();
        format!("{key}…")
    });
    let (state, color) = state(status.state);
    let seen = peer
        .latest_handshake
        .map(|time| short(until_now(time, now)));
    let seen = seen.unwrap_or_else(|| "never".to_owned());
    let rate = |rate| Text::from(binary(rate)).right_aligned();
    let rates = status.rate.unwrap_or_default();
    Row::new([
        Cell::from(format!(" {}", printable(&name))),
        Cell::from(state).style(Style::new().fg(color)),
        Cell::from(printable(peer.endpoint.as_deref().unwrap_or_default())),
        Cell::from(Text::from(seen).right_aligned()),
        Cell::from(rate(rates.rx)),
        Cell::from(rate(rates.tx)),
    ])
}

/// A peer that is met through the one above: its path and round trip, and where data goes.
fn direct_row(direct: &DirectPeer) -> Row<'static> {
    let (path, time, color) = match direct.path {
        DataPath::Direct => ("direct", direct.round_trip_us, Color::Green),
        DataPath::Relay => ("relay", direct.round_trip_us, Color::Yellow),
        DataPath::Hub => ("hub", direct.hub_round_trip_us, Color::Reset),
    };
    let path = match time {
        Some(time) => format!("{path} {}", milliseconds(time)),
        None => path.to_owned(),
    };
    let why = || reason(direct.why.as_deref()).to_owned();
    let seen = direct
        .handshake_age
        .map_or_else(|| "never".to_owned(), short);
    Row::new([
        Cell::from(format!("  {}", direct.address)),
        Cell::from(path).style(Style::new().fg(color)),
        Cell::from(direct.remote.clone().unwrap_or_else(why)),
        Cell::from(Text::from(seen).right_aligned()),
    ])
}

fn state(state: PeerState) -> (&'static str, Color) {
    match state {
        PeerState::Connected => ("connected", Color::Green),
        PeerState::Connecting => ("connecting", Color::Yellow),
        PeerState::Idle => ("idle", Color::Reset),
        PeerState::NoAnswer => ("no answer", Color::Red),
        PeerState::NotAuthentic => ("not authentic", Color::Red),
        PeerState::NoRoute => ("no route", Color::Red),
        PeerState::NameNotFound => ("name not found", Color::Red),
        PeerState::NoEndpoint => ("no endpoint", Color::Red),
    }
}

/// In the largest unit.
fn short(seconds: u64) -> String {
    let (minute, hour, day) = (60, 60 * 60, 24 * 60 * 60);
    match seconds {
        _ if seconds >= day => format!("{}d", seconds / day),
        _ if seconds >= hour => format!("{}h", seconds / hour),
        _ if seconds >= minute => format!("{}m", seconds / minute),
        _ => format!("{seconds}s"),
    }
}
