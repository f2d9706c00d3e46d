//! Tables of two contestants.

use std::path::Path;

use convoy_benches::peers::Row;

use super::*;
use crate::contestants;
use crate::report::TurnReport;
use crate::turn::Outcome;

fn outcome(figures: &[(Row, f64)]) -> Outcome {
    Outcome {
        figures: figures.iter().copied().collect(),
        ..Outcome::default()
    }
}

fn report() -> Report {
    let mut chosen = contestants::all(Path::new("no-convoy"), Path::new("no-peers"));
    chosen.truncate(2);
    let turn = |repetition, contestant: &str, outcome| TurnReport {
        repetition,
        contestant: contestant.to_owned(),
        outcome,
    };
    let mut limited = outcome(&[(Row::TcpUp, 6.0), (Row::Udp200k, 190.0)]);
    limited.generator_limited.push(Row::Udp200k);
    let mut failed = outcome(&[(Row::TcpUp, 2.0)]);
    failed.failures.push("Udp200k: the daemon ended".to_owned());
    let turns = vec![
        turn(
            0,
            "convoy",
            outcome(&[(Row::TcpUp, 4.0), (Row::Udp200k, 200.0)]),
        ),
        turn(
            0,
            "wireguard-go",
            outcome(&[(Row::TcpUp, 4.0), (Row::Udp200k, 50.0)]),
        ),
        turn(1, "wireguard-go", failed),
        turn(1, "convoy", limited),
    ];
    let bare = outcome(&[(Row::TcpUp, 19.0)]);
    Report::new(
        &chosen,
        &[Row::TcpUp, Row::Udp200k, Row::Memory],
        2,
        1,
        bare,
        turns,
    )
}

fn line(row: Row) -> Vec<String> {
    let text = markdown(&report());
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("| {}", row.title())));
    let cells = line.unwrap().trim_matches('|').split('|');
    cells.map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn a_row_has_medians_and_a_ratio_that_is_paired_by_repetition() {
    let cells = line(Row::TcpUp);
    let expected = [
        "TCP up, Gbit/s",
        "19.00",
        "5.00",
        "3.00",
        "wireguard-go",
        "2.00",
        "–",
        "≥ 1.25 ×",
        "median",
    ];
    assert_eq!(cells, expected);
}

#[test]
fn a_figure_that_the_generator_limits_is_marked() {
    let cells = line(Row::Udp200k);
    assert_eq!(cells[2..4], ["195.0 \\*", "50.0"]);
    assert_eq!(cells[5], "4.00", "only the first repetition has both");
    assert!(markdown(&report()).contains("the generator, not the tunnel, set the limit"));
}

#[test]
fn what_nobody_measured_is_a_dash() {
    let cells = line(Row::Memory);
    assert_eq!(cells[1..5], ["–", "–", "–", "–"]);
    assert_eq!(cells[8], "–");
}

#[test]
fn a_failure_is_told_with_its_repetition() {
    let text = markdown(&report());
    assert!(
        text.contains("Failed: wireguard-go in repetition 2: Udp200k: the daemon ended"),
        "{text}"
    );
}

#[test]
fn all_lines_of_the_table_are_equally_wide() {
    let text = markdown(&report());
    let widths: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.chars().count())
        .collect();
    assert_eq!(widths.len(), 5);
    assert!(widths.iter().all(|&width| width == widths[0]), "{text}");
}

#[test]
fn the_json_has_every_single_value_and_what_they_were_measured_with() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["turns"][3]["outcome"]["figures"]["tcp-up"], 6.0);
    assert_eq!(
        json["turns"][3]["outcome"]["generator_limited"][0],
        "udp-200k"
    );
    assert_eq!(
        json["rows"][0]["cells"][1]["values"],
        serde_json::json!([4.0, 2.0])
    );
    assert!(json["rows"][1]["cells"][1]["values"][1].is_null());
    assert_eq!(
        json["rows"][0]["convoy_to_best"]["ratio"]["values"],
        serde_json::json!([1.0, 3.0])
    );
    for key in ["command", "commit", "ended", "host", "contestants"] {
        assert!(!json[key].is_null(), "{key}");
    }
}
