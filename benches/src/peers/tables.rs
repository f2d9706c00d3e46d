//! The tables and plots of a comparison with other programs.

use plotters::style::{BLACK, RGBColor};

use crate::comparison::{Record, Verdict};
use crate::plot::{
    self, BLUE, Bars, Figure, GREEN, GREY, Line, ORANGE, PURPLE, Panel, SKY, Scale, VERMILION,
};
use crate::table::{self, cell, number};
use crate::tunnel::contender::{BARE, CONVOY};
use crate::tunnel::udp::Probe;
use crate::tunnel::{Kind, Row};

const LEGEND: &str = "
Figures are medians over the rounds. The ratio is Convoy's figure divided by that of the other program with the
best median in the row, taken within each round; in brackets its interval of 95 % (between two order statistics), or
of fewer than six rounds the lowest and the highest. `yes` keeps the must in the whole interval, `median` at the
median. `+q`: with Convoy's txqueuelen on its interface. CPU time and system calls (kcalls: thousands) are those of
both daemons for a gigabyte that arrived, memory is that of the greater one. TCP by iperf3; a ping is a UDP datagram
of 32 bytes every 10 ms and its echo; requests and answers are 32 bytes, one in flight. The highest rate of UDP is
that at which half of the probes lose at most 1 %.
";
const LIMITED: &str = "\\* In at least one round the generator, not the tunnel, set the limit.\n";
/// Rows of the bar chart.
const BARS: [&str; 4] = ["tcp-up", "tcp-down", "tcp-4", "tcp-both"];
const COLOURS: [RGBColor; 7] = [BLUE, ORANGE, VERMILION, GREEN, PURPLE, SKY, BLACK];

/// All tables, with their legend.
pub(crate) fn all(record: &Record) -> String {
    let mut text = origin(record);
    let programs = names(record, |one| one.kind == Kind::WireGuard);
    text += "\n### Convoy and the best other WireGuard program\n\n";
    text += &against_best(record, &programs, true);
    text += LEGEND;
    text += "\n### Every program with its defaults\n\n";
    let defaults = names(record, |one| !one.is_variant());
    let of_defaults = [&[BARE], &defaults[..]].concat();
    text += &everyone(record, &of_defaults, |_| true);
    let variants = names(record, |one| one.is_variant());
    if !variants.is_empty() {
        text += "\n### With Convoy's queue length\n\n";
        text += &everyone(record, &variants, |row| has_any(record, &variants, row));
    }
    let openvpns = names(record, |one| one.kind == Kind::OpenVpn);
    if !openvpns.is_empty() {
        text += "\n### Convoy and OpenVPN\n\n";
        text += &against_best(record, &[&[CONVOY], &openvpns[..]].concat(), false);
    }
    let is_limited = record
        .turns
        .iter()
        .any(|turn| !turn.outcome.generator_limited.is_empty());
    text += if is_limited { LIMITED } else { "" };
    for (name, why) in &record.absent {
        text += &format!("\n**Not measured: {name}**: {why}\n");
    }
    record
        .failures()
        .iter()
        .for_each(|failure| text += &format!("\n{failure}\n"));
    text
}

/// Where, when, and which versions.
fn origin(record: &Record) -> String {
    let versions = record.contenders.iter().filter(|one| !one.is_variant());
    let versions: Vec<_> = versions
        .map(|one| {
            format!(
                "- {}: {}",
                one.name,
                one.version.as_deref().unwrap_or("unknown")
            )
        })
        .collect();
    let origin = record.origin.paragraph();
    format!(
        "{origin}\n{} rounds.\n\n{}\n",
        record.rounds,
        versions.join("\n")
    )
}

/// Convoy, the best of the other `contenders`, the ratio; and the must, where it is judged.
fn against_best(record: &Record, contenders: &[&str], is_judged: bool) -> String {
    let others: Vec<_> = contenders
        .iter()
        .filter(|name| **name != CONVOY)
        .copied()
        .collect();
    let columns = if is_judged { 7 } else { 5 };
    let head = [
        "",
        "Convoy",
        "best other",
        "",
        "ratio (95 %)",
        "must",
        "kept",
    ];
    let row = |row: &'static Row| {
        let best = record.best(&others, row)?;
        // Where nobody uses any CPU time, a ratio says nothing.
        let ratio = record
            .ratio(CONVOY, best, row)
            .filter(|_| row.name != "cpu-idle");
        let (must, kept) = match record.verdict(CONVOY, Some(best), row) {
            Verdict::Holds => (must(row), "yes"),
            Verdict::HoldsAtTheMedian => (must(row), "median"),
            Verdict::Fails => (must(row), "**no**"),
            Verdict::Unknown => (String::new(), ""),
        };
        let mut cells = vec![
            row.title.to_owned(),
            figure(record, CONVOY, row),
            figure(record, best, row),
            best.to_owned(),
            cell(ratio.map(|ratio| ratio.text())),
            must,
            kept.to_owned(),
        ];
        cells.truncate(columns);
        Some(cells)
    };
    let rows = record.rows().into_iter().filter_map(row);
    table::markdown(
        [head[..columns]
            .iter()
            .map(|&title| title.to_owned())
            .collect()]
        .into_iter()
        .chain(rows)
        .collect(),
    )
}

/// The medians of all of `contenders`.
fn everyone(record: &Record, contenders: &[&str], shows: impl Fn(&Row) -> bool) -> String {
    let mut head = vec![String::new()];
    head.extend(contenders.iter().map(|name| short(name)));
    let rows = record
        .rows()
        .into_iter()
        .filter(|row| shows(row))
        .map(|row| {
            let figures = contenders.iter().map(|name| figure(record, name, row));
            [row.title.to_owned()].into_iter().chain(figures).collect()
        });
    table::markdown([head].into_iter().chain(rows).collect())
}

fn has_any(record: &Record, contenders: &[&str], row: &Row) -> bool {
    contenders
        .iter()
        .any(|name| record.median(name, row).is_some())
}

fn figure(record: &Record, name: &str, row: &Row) -> String {
    let mark = if record.is_limited(name, row) {
        "\\*"
    } else {
        ""
    };
    number(record.median(name, row), row.decimals) + mark
}

fn must(row: &Row) -> String {
    use crate::tunnel::rows::Aim;
    match row.aim {
        Aim::RatioAtLeast(limit) => format!("≥ {limit} ×"),
        Aim::RatioAtMost(limit) => format!("≤ {limit} ×"),
        Aim::AtMost(limit) => format!("≤ {limit}"),
        Aim::More | Aim::Less => String::new(),
    }
}

/// A name that leaves room for eight columns.
fn short(name: &str) -> String {
    let shorter = [
        (BARE, "bare"),
        ("wireguard-go", "wg-go"),
        ("tailscale", "tailsc."),
        ("boringtun", "boringt."),
    ];
    shorter.iter().fold(name.to_owned(), |name, (long, short)| {
        name.replace(long, short)
    })
}

fn names(record: &Record, is_in: impl Fn(&crate::tunnel::Contender) -> bool) -> Vec<&str> {
    let contenders = record.contenders.iter().filter(|one| is_in(one));
    contenders.map(|one| one.name.as_str()).collect()
}

/// TCP of every program with its defaults; none where it was not measured.
pub(crate) fn bars(record: &Record) -> Option<Bars> {
    let defaults = names(record, |one| {
        one.kind == Kind::WireGuard && !one.is_variant()
    });
    let rows: Vec<_> = BARS.iter().filter_map(|name| Row::named(name)).collect();
    let shown: Vec<_> = rows
        .into_iter()
        .filter(|row| has_any(record, &defaults, row))
        .collect();
    let series = defaults.iter().zip(COLOURS).map(|(name, colour)| {
        let medians = shown.iter().map(|row| record.median(name, row));
        ((*name).to_owned(), colour, medians.collect())
    });
    (!shown.is_empty()).then(|| Bars {
        title: "TCP through a tunnel between two namespaces of one machine".to_owned(),
        subtitle: format!(
            "medians of {} interleaved rounds · {}",
            record.rounds,
            record.origin.line()
        ),
        y_label: "Gbit/s".to_owned(),
        groups: shown
            .iter()
            .map(|row| row.title.replace(", Gbit/s", ""))
            .collect(),
        series: series.collect(),
    })
}

/// UDP that arrives by the rate at which it is sent: the file's name, and its document.
pub(crate) fn curves(record: &Record) -> anyhow::Result<Vec<(String, String)>> {
    let rows = record
        .rows()
        .into_iter()
        .filter(|row| row.name.ends_with("-most"));
    let plots = rows.filter_map(|row| {
        let lines = lines(record, row);
        (!lines.is_empty()).then(|| {
            let figure = Figure {
                title: row
                    .title
                    .replace("most that arrived, kpps", "arrived by sent"),
                subtitle: record.origin.line(),
                x_label: "sent (kpps)".to_owned(),
                x_scale: Scale::Linear,
                panels: vec![Panel {
                    y_label: "arrived (kpps)".to_owned(),
                    scale: Scale::Linear,
                    lines,
                }],
                marks: Vec::new(),
            };
            Ok((
                format!("peers-{}.svg", row.name.trim_end_matches("-most")),
                plot::svg(&figure)?,
            ))
        })
    });
    plots.collect()
}

fn lines(record: &Record, row: &Row) -> Vec<Line> {
    let defaults = names(record, |one| !one.is_variant()).into_iter();
    let lines = defaults
        .zip(COLOURS)
        .chain([(BARE, GREY)])
        .map(|(name, colour)| Line {
            name: name.to_owned(),
            colour,
            points: medians(record, name, row),
        });
    lines.filter(|line| !line.points.is_empty()).collect()
}

/// Point by point, over the rounds that reached it.
fn medians(record: &Record, name: &str, row: &Row) -> Vec<(f64, f64)> {
    let own = record.turns.iter().filter(|turn| turn.contender == name);
    let curves = own.filter_map(|turn| turn.outcome.raw.get(row.name));
    let curves = curves.filter_map(|raw| serde_json::from_value(raw.clone()).ok());
    let curves: Vec<Vec<Probe>> = curves.collect();
    let longest = curves.iter().map(Vec::len).max().unwrap_or(0);
    let median = |number: usize, of: fn(&Probe) -> f64| {
        let points = curves.iter().filter_map(|curve| curve.get(number));
        Some(convoy_lab::measure::Sample::of(points.map(of).collect())?.median)
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
    fn a_row_stands_beside_the_best_other_with_its_ratio_and_must() {
        let record = record(
            "tcp-up",
            &[
                ("convoy", &[6.0; 6]),
                ("gotatun", &[1.0; 6]),
                ("tailscale", &[4.0; 6]),
            ],
        );
        let text = all(&record);
        let line = text
            .lines()
            .find(|line| line.starts_with("| TCP up"))
            .unwrap();
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let expected = [
            "6.00",
            "4.00",
            "tailscale",
            "1.50 (1.50–1.50)",
            "≥ 1.25 ×",
            "yes",
        ];
        assert_eq!(cells[2..8], expected);
        assert_eq!(bars(&record).unwrap().series.len(), 3);
    }

    #[test]
    fn no_line_is_wider_than_120_columns() {
        let names = [
            "convoy",
            "wireguard-go",
            "tailscale",
            "gotatun",
            "boringtun",
            "openvpn",
        ];
        let mut record = record(
            "request-tcp-loaded-p99.9",
            &names.map(|name| (name, &[123_456.0][..])),
        );
        record.rows = crate::tunnel::rows::ROWS
            .iter()
            .map(|row| row.name.to_owned())
            .collect();
        for line in all(&record).lines().filter(|line| line.starts_with('|')) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }

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
            turn.outcome
                .raw
                .insert("udp-64-most".to_owned(), points.collect());
        }
        let row = record.rows()[0];
        assert_eq!(
            medians(&record, "convoy", row),
            [(26.0, 26.0), (50.0, 50.0)]
        );
        assert_eq!(curves(&record).unwrap()[0].0, "peers-udp-64.svg");
    }
}
