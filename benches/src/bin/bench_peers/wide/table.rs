//! A report of the wide set in Markdown.

use convoy_benches::markdown;

use super::report::{Cell, Report, RowReport, Table};
use crate::table::{LIMITED, none, number};

const LEGEND: &str = "
Figures are medians over the repetitions. The ratio is Convoy's figure divided by that of the other
with the best median in the row, taken within each repetition: its median, the least and the most. CPU
time and system calls are those of both daemons for a gigabyte that arrived (the calls counted in a run of
their own), memory is the peak of the greater daemon in that run. Requests and answers are 32 bytes, one
in flight.
";

/// Both tables, with what must be known to read them.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = report.header.markdown();
    for table in &report.tables {
        text += &format!("\n### {}\n\n", table.title);
        text += &markdown::table(&cells(table));
    }
    for absent in &report.absent {
        text += &format!("\n**Not measured: {}**: {}\n", absent.name, absent.why);
    }
    text += LEGEND;
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    if rows
        .flat_map(|row| &row.cells)
        .any(|cell| cell.generator_limited)
    {
        text += LIMITED;
    }
    for turn in &report.turns {
        for failure in &turn.outcome.failures {
            let (who, when) = (&turn.contestant, turn.repetition + 1);
            text += &format!("\nFailed: {who} in repetition {when}: {failure}\n");
        }
    }
    text
}

fn cells(table: &Table) -> Vec<Vec<String>> {
    let mut head = vec![String::new(), "bare veth".to_owned()];
    head.extend(table.contestants.iter().cloned());
    head.extend(["best other", "ratio", "least–most"].map(str::to_owned));
    [head]
        .into_iter()
        .chain(table.rows.iter().map(row))
        .collect()
}

fn row(row: &RowReport) -> Vec<String> {
    let figure = |value| number(value, row.decimals);
    let cell = |cell: &Cell| figure(cell.median) + if cell.generator_limited { " \\*" } else { "" };
    let ratio = row.ratio.as_ref();
    let span = ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.min, ratio.max));
    let mut cells = vec![row.title.clone(), figure(row.bare_veth)];
    cells.extend(row.cells.iter().map(cell));
    cells.extend([
        row.best_other.clone().unwrap_or_else(none),
        number(ratio.map(|ratio| ratio.median), 2),
        span.unwrap_or_else(none),
    ]);
    cells
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{RATE, report};
    use super::*;

    #[test]
    fn a_row_has_medians_and_a_ratio_that_is_paired_by_repetition() {
        let report = report();
        let rows = &report.tables[0].rows;
        let rate = rows.iter().find(|one| one.row == RATE).unwrap();
        let expected = [
            "TCP up, 8 streams, Gbit/s",
            "20.00",
            "5.00",
            "2.00",
            "1.00 \\*",
            "wireguard-go",
            "2.50",
            "2.00–3.00",
        ];
        assert_eq!(row(rate), expected);
    }

    #[test]
    fn who_is_absent_and_what_failed_is_told() {
        let text = markdown(&report());
        let absent = "**Not measured: openvpn-dco**: the kernel has no part for it";
        assert!(text.contains(absent), "{text}");
        let failed = "Failed: tailscale in repetition 2: Udp64: the daemon ended";
        assert!(text.contains(failed), "{text}");
        assert!(text.contains("### Ordinary VPNs"));
        assert!(text.contains(LIMITED));
    }

    #[test]
    fn a_table_is_as_wide_in_every_line() {
        let report = report();
        for table in &report.tables {
            let rows = cells(table);
            assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        }
    }
}
