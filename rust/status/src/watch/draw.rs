//! Draws the screen: for 80 × 24 characters, and for more.

use convoy_process::printable;
use convoy_report::{Condition, Counters, Status};
use convoy_stats::binary;
use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Block, Borders, Padding, Paragraph, Sparkline, Wrap},
};

use super::{batches, peers, screen::Screen};
use crate::text::{condition, counters::offloads};

const KEYS: &str = " q quit   ←→ tunnels   ↑↓ peers";

/// The most lines of warnings.
const WARNINGS: u16 = 2;

pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, now: Timestamp) {
    let all = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]);
    let [body, keys] = all.areas(frame.area());
    frame.render_widget(Line::from(KEYS).dim(), keys);
    let Some((status, number, count)) = screen.shown() else {
        let problems = printable(&screen.problems.join("; "));
        let text = match problems.as_str() {
            "" => "No tunnel is up. The first one appears here as soon as it is.",
            problems => problems,
        };
        return frame.render_widget(indented(text), body);
    };
    let warnings = warnings(status, &screen.problems);
    let [title, details, troubles, rates, list, counters] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(lines(&warnings, body.width)),
        Constraint::Length(5),
        Constraint::Fill(1),
        Constraint::Length(batches::HEIGHT),
    ])
    .areas(body);

    draw_title(frame, title, status, (number, count), now);
    frame.render_widget(Line::from(format!(" {}", facts(status))).dim(), details);
    frame.render_widget(indented(&warnings).yellow(), troubles);
    draw_rates(frame, rates, &screen.rates(&status.name));
    batches::draw(frame, counters, screen.recent(&status.name));
    let top = peers::draw(frame, list, status, screen.top, now);
    screen.top = top;
}

fn draw_title(
    frame: &mut Frame<'_>,
    area: Rect,
    status: &Status,
    (number, count): (usize, usize),
    now: Timestamp,
) {
    let color = match status.state {
        Condition::Up | Condition::Daemon => Color::Green,
        Condition::Paused | Condition::WithoutSupervisor => Color::Yellow,
    };
    let title = Line::from(vec![
        Span::from(format!(" {} ", status.name)).bold(),
        Span::styled(condition(status, now), Style::new().fg(color)),
    ]);
    frame.render_widget(title, area);
    if count > 1 {
        let text = format!("tunnel {number} of {count} ");
        frame.render_widget(Line::from(text).right_aligned().dim(), area);
    }
}

/// Lists what rarely changes.
fn facts(status: &Status) -> String {
    let switch = status.kill_switch.as_deref();
    let stats = status.stats.as_ref();
    let facts = [
        status.mtu.map(|mtu| format!("MTU {mtu}")),
        switch.map(|switch| match status.kill_switch_closed {
            Some(false) if switch != "off" => format!("kill switch {switch}, but open"),
            _ => format!("kill switch {switch}"),
        }),
        stats.and_then(|stats| Some(format!("AEAD {}", stats.state.get("aead")?))),
        stats.map(offload),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    facts.join(", ")
}

/// Each offload by its name only if one is off.
fn offload(stats: &Counters) -> String {
    let states: Vec<_> = offloads(stats).collect();
    match states.iter().all(|state| state.ends_with(" on")) {
        true => "offload on".to_owned(),
        false => states.join(", "),
    }
}

fn warnings(status: &Status, problems: &[String]) -> String {
    let outer = status.via.iter().flat_map(|via| &via.peers);
    let of_peers = status.peers.iter().chain(outer);
    let of_peers = of_peers.filter_map(|it| it.problem.as_ref());
    let all = problems.iter().chain(&status.warnings).chain(of_peers);
    let all: Vec<_> = all.map(String::as_str).collect();
    printable(&all.join("; "))
}

/// With a column free at either side.
fn indented(text: &str) -> Paragraph<'_> {
    let block = Block::new().padding(Padding::horizontal(1));
    Paragraph::new(text).wrap(Wrap { trim: true }).block(block)
}

/// Returns how many lines a text gets: the most if it does not fit into one.
fn lines(text: &str, width: u16) -> u16 {
    match text.chars().count() {
        0 => 0,
        length if length + 2 <= usize::from(width) => 1,
        _ => WARNINGS,
    }
}

/// Two sparklines, with the latest rates beside them.
fn draw_rates(frame: &mut Frame<'_>, area: Rect, rates: &[(u64, u64)]) {
    let block = Block::new()
        .borders(Borders::TOP)
        .title(" Rate, last minute ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical([Constraint::Length(2); 2]);
    let [received, sent] = rows.areas(inside);
    let latest = rates.last().copied().unwrap_or_default();
    let (rx, tx) = rates.iter().copied().unzip();
    for (area, name, latest, history, color) in [
        (received, "received", latest.0, rx, Color::Cyan),
        (sent, "sent", latest.1, tx, Color::Magenta),
    ] {
        let history: Vec<u64> = history;
        let columns = Layout::horizontal([Constraint::Length(18), Constraint::Fill(1)]);
        let [label, graph] = columns.areas(area);
        let text = format!(" {name}\n {}/s", binary(latest));
        frame.render_widget(Paragraph::new(text), label);
        let first = history.len().saturating_sub(usize::from(graph.width));
        let sparkline = Sparkline::default().data(&history[first..]);
        frame.render_widget(sparkline.style(Style::new().fg(color)), graph);
    }
}

#[cfg(test)]
mod tests;
