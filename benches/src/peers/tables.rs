//! The tables and plots of a comparison with other programs.

use convoy_lab::measure::Sample;
use plotters::style::{BLACK, RGBColor};

use crate::comparison::Record;
use crate::plot::{BLUE, Figure, GREEN, GREY, Line, ORANGE, PURPLE, Panel, SKY, VERMILION};
use crate::results::{Picture, Report};
use crate::table::{self, cell, number};
use crate::tunnel::contender::{BARE, CONVOY};
use crate::tunnel::rows::{Aim, Set};
use crate::tunnel::udp::Probe;
use crate::tunnel::{Contender, Kind, Row};

use super::rootless;

const LEGEND: &str = "
Figures are medians over the rounds. A ratio divides Convoy's figure by that of the other program with the best
median in the row, within each round. Brackets hold its 95 % interval (between two order statistics), or for fewer
than six rounds its lowest and highest value. A target is met by the whole interval (`yes`) or only by the median
(`median`). `+q`: with Convoy's txqueuelen on its interface. CPU time and system calls (kcalls: thousands) are totals
of both daemons per gigabyte received; memory is that of the larger daemon. TCP is iperf3's. A ping is a UDP datagram
of 32 bytes every 10 ms and its echo; requests and answers have 32 bytes, one in flight. The highest UDP rate is the
one at which half of the probes lose at most 1 %.
";
const LIMITED: &str = "\\* In at least one round the generator, not the tunnel, set the limit.\n";
/// Rows of the bar chart.
const BARS: [&str; 4] = ["tcp-up", "tcp-down", "tcp-4", "tcp-both"];
const COLOURS: [RGBColor; 7] = [BLUE, ORANGE, VERMILION, GREEN, PURPLE, SKY, BLACK];

/// All tables and their legend.
impl Report for Record {
    fn text(&self) -> String {
        let mut text = format!("{}\n{} rounds.\n\n", self.origin.paragraph(), self.rounds);
        for one in self.contenders.iter().filter(|one| !one.is_variant()) {
            text += &format!("- {}: {}\n", one.name, cell(one.version.as_ref()));
        }
        text += &match self.set {
            Set::Programs => self.of_programs(),
            Set::Rootless | Set::Gateways => rootless::text(self),
        };
        for (name, why) in &self.absent {
            text += &format!("\n**Not measured: {name}**: {why}\n");
        }
        for failure in self.failures() {
            text += &format!("\n{failure}\n");
        }
        text
    }

    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        let mut pictures = Vec::new();
        if self.set != Set::Programs {
            return Ok(pictures);
        }
        let bars = bars(self);
        if !bars.groups.is_empty() {
            let picture = Picture::of("peers.svg", &bars)?;
            pictures.push(Picture {
                title: "TCP throughput by program".to_owned(),
                ..picture
            });
        }
        for row in self.rows() {
            if let (Some(name), lines @ [_, ..]) =
                (row.name.strip_suffix("-most"), &lines(self, row)[..])
            {
                let figure = curve(self, row, lines.to_vec());
                pictures.push(Picture::of(&format!("peers-{name}.svg"), &figure)?);
            }
        }
        Ok(pictures)
    }
}

impl Record {
    fn of_programs(&self) -> String {
        let mut text = String::new();
        let programs = names(self, |one| one.kind == Kind::WireGuard);
        text += "\n### Convoy and the best other WireGuard program\n\n";
        text += &against_best(self, &programs, true);
        text += LEGEND;
        text += "\n### Every program with its defaults\n\n";
        let defaults = names(self, |one| !one.is_variant());
        text += &everyone(self, &[&[BARE], &defaults[..]].concat(), |_| true);
        let variants = names(self, Contender::is_variant);
        if !variants.is_empty() {
            text += "\n### With Convoy's queue length\n\n";
            text += &everyone(self, &variants, |row| has_any(self, &variants, row));
        }
        let openvpns = names(self, |one| one.kind == Kind::OpenVpn);
        if !openvpns.is_empty() {
            text += "\n### Convoy and OpenVPN\n\n";
            text += &against_best(self, &openvpns, false);
        }
        let mut turns = self.turns.iter();
        if turns.any(|turn| !turn.outcome.generator_limited.is_empty()) {
            text += LIMITED;
        }
        text
    }
}

/// Convoy, the best of `contenders` and their ratio; if judged, also the target and whether it is met.
fn against_best(record: &Record, contenders: &[&str], is_judged: bool) -> String {
    let others = contenders.iter().filter(|name| **name != CONVOY);
    let others: Vec<_> = others.copied().collect();
    let mut head = " | Convoy | best other |  | ratio (95 %)".to_owned();
    if is_judged {
        head += " | target | met";
    }
    let row = |row: &'static Row| {
        let best = record.best(&others, row)?;
        // If nobody uses any CPU time, a ratio means nothing.
        let has_ratio = row.name != "cpu-idle";
        let ratio = record.ratio(CONVOY, best, row).filter(|_| has_ratio);
        let kept = record.verdict(CONVOY, Some(best), row).text();
        let mut cells = vec![
            row.title.to_owned(),
            figure(record, CONVOY, row),
            figure(record, best, row),
            best.to_owned(),
            cell(ratio.map(|ratio| ratio.text())),
        ];
        if is_judged {
            let must = match kept {
                "" => String::new(),
                _ => must(row),
            };
            cells.extend([must, kept.to_owned()]);
        }
        Some(cells)
    };
    table::markdown(&head, record.rows().into_iter().filter_map(row))
}

/// The medians of all `contenders`.
pub(super) fn everyone(
    record: &Record,
    contenders: &[&str],
    shows: impl Fn(&Row) -> bool,
) -> String {
    let names = contenders.iter().map(|name| format!(" | {}", short(name)));
    let head: String = names.collect();
    let rows = record.rows().into_iter().filter(|row| shows(row));
    let rows = rows.map(|row| {
        let figures = contenders.iter().map(|name| figure(record, name, row));
        [row.title.to_owned()].into_iter().chain(figures).collect()
    });
    table::markdown(&head, rows)
}

fn has_any(record: &Record, contenders: &[&str], row: &Row) -> bool {
    let mut medians = contenders.iter().map(|name| record.median(name, row));
    medians.any(|median| median.is_some())
}

fn figure(record: &Record, name: &str, row: &Row) -> String {
    let is_limited = record.is_limited(name, row);
    let mark = if is_limited { "\\*" } else { "" };
    number(record.median(name, row), row.decimals) + mark
}

fn must(row: &Row) -> String {
    match row.aim {
        Aim::RatioAtLeast(limit) => format!("≥ {limit} ×"),
        Aim::RatioAtMost(limit) => format!("≤ {limit} ×"),
        Aim::AtMost(limit) => format!("≤ {limit}"),
        Aim::More | Aim::Less => String::new(),
    }
}

/// A name short enough for eight columns.
fn short(name: &str) -> String {
    let shorter = [
        (BARE, "bare"),
        ("ports-smoltcp", "-L smol."),
        ("ports", "-L"),
        ("wireproxy-socks5", "wireprox. S5"),
        ("nat-smoltcp", "nat smol."),
        ("wireguard-go", "wg-go"),
        ("tailscale", "tailsc."),
        ("boringtun", "boringt."),
    ];
    shorter.iter().fold(name.to_owned(), |name, (long, short)| {
        name.replace(long, short)
    })
}

pub(super) fn names(record: &Record, is_in: impl Fn(&Contender) -> bool) -> Vec<&str> {
    let contenders = record.contenders.iter().filter(|one| is_in(one));
    contenders.map(|one| one.name.as_str()).collect()
}

/// TCP throughput of every program with its defaults.
fn bars(record: &Record) -> Figure {
    let defaults = names(record, |one| {
        one.kind == Kind::WireGuard && !one.is_variant()
    });
    let rows = BARS.iter().filter_map(|name| Row::named(name));
    let rows: Vec<_> = rows.filter(|row| has_any(record, &defaults, row)).collect();
    let bars = defaults.iter().zip(COLOURS).map(|(name, colour)| {
        let medians = (0..).zip(&rows);
        let medians = medians.filter_map(|(at, row)| Some((at.into(), record.median(name, row)?)));
        Line::new(*name, colour, medians)
    });
    let (rounds, origin) = (record.rounds, record.origin.line());
    let groups = rows.iter().map(|row| row.title.replace(", Gbit/s", ""));
    Figure {
        title: "TCP through a tunnel between two namespaces of one machine".to_owned(),
        subtitle: format!("medians of {rounds} interleaved rounds · {origin}"),
        groups: groups.collect(),
        panels: vec![Panel::linear("Gbit/s", bars.collect())],
        ..Figure::default()
    }
}

/// UDP arrival rate by sending rate.
fn curve(record: &Record, row: &Row, lines: Vec<Line>) -> Figure {
    Figure {
        title: row
            .title
            .replace("peak arrival rate, kpps", "arrived by sent"),
        subtitle: record.origin.line(),
        x_label: "sent (kpps)".to_owned(),
        panels: vec![Panel::linear("arrived (kpps)", lines)],
        ..Figure::default()
    }
}

fn lines(record: &Record, row: &Row) -> Vec<Line> {
    let defaults = names(record, |one| !one.is_variant()).into_iter();
    let lines = defaults.zip(COLOURS).chain([(BARE, GREY)]);
    let lines = lines.map(|(name, colour)| Line::new(name, colour, medians(record, name, row)));
    lines.filter(|line| !line.is_empty()).collect()
}

/// The median of each point, over the rounds that reached it.
fn medians(record: &Record, name: &str, row: &Row) -> Vec<(f64, f64)> {
    let own = record.turns.iter().filter(|turn| turn.contender == name);
    let curves = own.filter_map(|turn| turn.outcome.raw.get(row.name));
    let curves = curves.filter_map(|raw| serde_json::from_value(raw.clone()).ok());
    let curves: Vec<Vec<Probe>> = curves.collect();
    let longest = curves.iter().map(Vec::len).max().unwrap_or(0);
    let median = |number: usize, of: fn(&Probe) -> f64| {
        let points = curves.iter().filter_map(|curve| curve.get(number));
        Some(Sample::of(points.map(of).collect())?.median)
    };
    let point = |number| {
        let sent = median(number, |point| point.sent_kpps);
        sent.zip(median(number, |point| point.arrived_kpps))
    };
    (0..longest).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::record;

    #[test]
    fn a_curve_is_drawn_of_the_rounds_that_reached_each_rate() {
        let mut record = record("udp-64-most", &[("convoy", &[2.0, 2.0])]);
        for (turn, rates) in record.turns.iter_mut().zip([&[25.0, 50.0][..], &[27.0]]) {
            let points = rates.iter().map(|rate| {
                serde_json::json!({
                    "payload": 64, "asked_kpps": rate, "sent_kpps": rate, "arrived_kpps": rate,
                    "receiver_loss": 0.0, "held_rate": true,
                })
            });
            let raw = &mut turn.outcome.raw;
            raw.insert("udp-64-most".to_owned(), points.collect());
        }
        let medians = medians(&record, "convoy", record.rows()[0]);
        assert_eq!(medians, [(26.0, 26.0), (50.0, 50.0)]);
        let pictures = record.pictures().unwrap();
        assert_eq!(pictures[0].file, "peers-udp-64.svg");
    }
}
