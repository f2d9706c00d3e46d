//! A report in Markdown.

use convoy_benches::markdown;
use convoy_lab::measure::Sample;

use crate::compare::{Figure, Report, Row, Verdict};

const LEGEND: &str = "\
Medians over the rounds. Noise is the furthest from 1 that the base's ratio to itself was in any round.
A change is what lies beyond it, and points the same way in every round. Instructions are those of one
repetition: they differ only where the code does.
";

/// The table, with what must be known to read it.
pub(crate) fn markdown(report: &Report) -> String {
    let origin = &report.origin;
    let against = report.base.as_deref().unwrap_or("itself");
    let mut text = format!(
        "{} against {against}, {} rounds, {}\n\n",
        origin.commit, report.rounds, origin.host
    );
    let head = [
        "stage",
        "base",
        "head",
        "head ÷ base",
        "noise",
        "change",
        "instructions",
        "head ÷ base",
    ];
    let head = head.map(str::to_owned);
    let rows = report.rows.iter().map(cells);
    let rows: Vec<_> = [head].into_iter().chain(rows).map(Vec::from).collect();
    text += &markdown::table(&rows);
    text + "\n" + LEGEND
}

fn cells(row: &Row) -> [String; 8] {
    let none = || "–".to_owned();
    let figure = |sample: &Option<Sample>| {
        let sample = sample.as_ref();
        sample.map_or_else(none, |sample| shown(row.figure, sample.median))
    };
    let ratio =
        |sample: &Sample| format!("{:.3} ({:.3}–{:.3})", sample.median, sample.min, sample.max);
    let counted = row.instructions;
    let counted_ratio = counted
        .head
        .zip(counted.base)
        .map(|(head, base)| head / base);
    let count = counted.head.or(counted.base);
    [
        row.name.trim_start_matches("stages::").to_owned(),
        figure(&row.base),
        figure(&row.head),
        row.compared.as_ref().map_or_else(none, ratio),
        row.noise
            .map_or_else(none, |noise| format!("{:.1} %", noise * 100.0)),
        match row.verdict {
            Verdict::Better => "better".to_owned(),
            Verdict::Worse => "**worse**".to_owned(),
            Verdict::NoChange => "no".to_owned(),
            Verdict::NotCompared => none(),
        },
        count.map_or_else(none, |count| format!("{count:.0}")),
        counted_ratio.map_or_else(none, |ratio| format!("{ratio:.4}")),
    ]
}

fn shown(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Nanoseconds if value < 1e3 => format!("{value:.1} ns"),
        Figure::Nanoseconds if value < 1e6 => format!("{:.2} µs", value / 1e3),
        Figure::Nanoseconds => format!("{:.2} ms", value / 1e6),
        Figure::GigabitsPerSecond => format!("{value:.2} Gbit/s"),
        Figure::CpuSecondsPerGigabyte => format!("{value:.2} s/GB"),
    }
}

#[cfg(test)]
mod tests {
    use convoy_benches::origin::Origin;

    use super::*;

    #[test]
    fn every_row_has_as_many_cells_as_the_head() {
        let pair = |a: f64, b: f64| [vec![a; 3], vec![b; 3]];
        let slower = Row::new(
            "stages::path::outbound".to_owned(),
            Figure::Nanoseconds,
            pair(40_000.0, 40_400.0),
            Some(pair(40_000.0, 44_000.0)),
        );
        let only_here = Row::new(
            "stages::new".to_owned(),
            Figure::Nanoseconds,
            pair(3.0, 3.0),
            None,
        );
        let report = Report {
            origin: Origin::of_this_run(Vec::new()),
            base: Some("0123456789ab".to_owned()),
            rounds: 3,
            rows: vec![slower, only_here],
        };
        let text = markdown(&report);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(lines.iter().all(|line| line.matches('|').count() == 9));
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split('|').map(str::trim);
            cells
                .map(str::to_owned)
                .filter(|cell| !cell.is_empty())
                .collect()
        };
        let slower = [
            "path::outbound",
            "40.00 µs",
            "44.00 µs",
            "1.100 (1.100–1.100)",
        ];
        assert_eq!(cells(lines[2])[..4], slower);
        assert_eq!(cells(lines[2])[4..], ["1.0 %", "**worse**", "–", "–"]);
        let only_here = ["new", "3.0 ns", "–", "–", "1.0 %", "–", "–", "–"];
        assert_eq!(cells(lines[3]), only_here);
    }
}
