//! Batch sizes and drops of the last minute.

use convoy_report::Counters;
use convoy_stats::grouped;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph},
};

use crate::text::counters::{BATCHES, Batches, batch_figures};

/// With the title, and the header of the table.
pub(super) const HEIGHT: u16 = 2 + BATCHES;

/// Width of the table.
const WIDTH: u16 = 50;

/// Draws what was counted in the last minute, and since the last look.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, recent: Option<(Counters, Counters)>) {
    let columns = Layout::horizontal([Constraint::Length(WIDTH), Constraint::Fill(1)]);
    let [batches, drops] = columns.spacing(1).areas(area);
    let titled = |title| Block::new().borders(Borders::TOP).title(title);
    let (minute, latest) = recent.unwrap_or_default();

    let header = format!(" {:<22}{:>6} {:>4} {:>5}  1–64", "", "mean", "50 %", "99 %");
    let mut lines = vec![Line::from(header).dim()];
    lines.extend(batch_figures().map(|(key, title)| {
        let numbers = match Batches::of(&minute, key) {
            Some(batches) => format!(
                "{:>6.1} {:>4} {:>5}  {}",
                batches.mean, batches.half, batches.most, batches.bars
            ),
            None => format!("{:>6}", "–"),
        };
        Line::from(format!(" {title:<22}{numbers}"))
    }));
    let table = Paragraph::new(lines).block(titled(" Batches, last minute "));
    frame.render_widget(table, batches);

    let room = usize::from(drops.height.saturating_sub(1));
    let lines = drops_of(&minute, &latest, room);
    let list = Paragraph::new(lines).block(titled(" Drops, last minute "));
    frame.render_widget(list, drops);
}

/// The most frequent ones; those that go on are red.
fn drops_of(minute: &Counters, latest: &Counters, room: usize) -> Vec<Line<'static>> {
    let mut drops: Vec<_> = minute
        .drops
        .iter()
        .filter(|(_, count)| **count > 0)
        .collect();
    drops.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if drops.is_empty() {
        return vec![Line::from(" none").dim()];
    }
    let lines = drops.iter().take(room).map(|(reason, count)| {
        let is_going_on = latest.drops.get(*reason).is_some_and(|latest| *latest > 0);
        let color = if is_going_on {
            Color::Red
        } else {
            Color::Reset
        };
        Line::from(Span::styled(
            format!("{:>7} {reason}", grouped(**count)),
            Style::new().fg(color),
        ))
    });
    lines.collect()
}
