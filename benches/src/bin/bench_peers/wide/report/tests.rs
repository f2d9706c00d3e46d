//! Reports of a few contestants.

use std::path::Path;

use super::super::curve::tests::point;
use super::super::rows::{Figure, Stream};
use super::*;
use crate::contestants;

pub(in crate::wide) const RATE: Row = Row::Tcp(Stream::EightUp, Figure::Rate);
const MEMORY: Row = Row::Tcp(Stream::EightUp, Figure::Memory);

fn outcome(rate: f64, memory: f64, points: &[(f64, f64)]) -> Outcome {
    let points = points.iter().map(|&(sent, arrived)| point(sent, arrived));
    let curve = Curve {
        payload: 64,
        points: points.collect(),
    };
    Outcome {
        figures: [(RATE, rate), (MEMORY, memory)].into(),
        details: Details {
            curves: vec![curve],
            ..Details::default()
        },
        ..Outcome::default()
    }
}

/// Convoy, wireguard-go and tailscale in two repetitions, OpenVPN in one; its kernel part is absent.
pub(in crate::wide) fn report() -> Report {
    let all = contestants::wide(Path::new("no-convoy"), Path::new("no-peers"));
    let takes_part = |one: &Contestant| {
        ["convoy", "wireguard-go", "tailscale", "openvpn"].contains(&one.name.as_str())
    };
    let chosen: Vec<_> = all.into_iter().filter(takes_part).collect();
    let turn = |repetition, contestant: &str, outcome| TurnReport {
        repetition,
        contestant: contestant.to_owned(),
        outcome,
    };
    let mut failed = outcome(1.0, 18.0, &[]);
    failed.failures.push("Udp64: the daemon ended".to_owned());
    failed.generator_limited.push(RATE);
    let turns = vec![
        turn(
            0,
            "convoy",
            outcome(4.0, 20.0, &[(25.0, 25.0), (50.0, 49.0)]),
        ),
        turn(0, "wireguard-go", outcome(2.0, 400.0, &[(25.0, 20.0)])),
        turn(0, "tailscale", outcome(1.0, 17.0, &[])),
        turn(1, "tailscale", failed),
        turn(1, "convoy", outcome(6.0, 20.0, &[(25.0, 25.0)])),
        turn(1, "wireguard-go", outcome(2.0, 410.0, &[(25.0, 24.0)])),
        turn(1, "openvpn", outcome(0.5, 9.0, &[])),
    ];
    let absent = Absent {
        name: "openvpn-dco".to_owned(),
        why: "the kernel has no part for it".to_owned(),
    };
    let measured = Measured {
        tests: vec![Test::TcpUp, Test::Tcp8Up, Test::Udp64],
        absent: vec![absent],
        bare_veth: outcome(20.0, 0.0, &[(25.0, 25.0)]),
        turns,
    };
    Report::new(&chosen, 2, 1, measured)
}

#[test]
fn each_table_has_its_own_contestants_and_rows() {
    let [peers, others] = report().tables;
    assert_eq!(peers.contestants, ["convoy", "wireguard-go", "tailscale"]);
    assert_eq!(others.contestants, ["convoy", "openvpn"]);
    assert_eq!((peers.rows.len(), others.rows.len()), (5, 4));
    assert_eq!(peers.rows[0].row, RATE.name());
}

#[test]
fn the_best_is_the_one_with_more_speed_or_less_memory() {
    let [peers, _] = report().tables;
    let best = |row: Row| {
        let row = peers.rows.iter().find(|one| one.row == row.name()).unwrap();
        let ratio = row.ratio.as_ref().unwrap();
        (row.best_other.clone().unwrap(), ratio.values.clone())
    };
    assert_eq!(best(RATE), ("wireguard-go".to_owned(), vec![2.0, 3.0]));
    assert_eq!(best(MEMORY).0, "tailscale");
    assert!(peers.rows[0].cells[2].generator_limited);
}

#[test]
fn a_point_of_a_curve_is_the_median_of_the_repetitions_that_reached_it() {
    let report = report();
    let found: Vec<_> = report
        .curves
        .iter()
        .map(|line| (line.contestant.as_str(), line.points.clone()))
        .collect();
    let expected = [
        ("convoy", vec![(25.0, 25.0), (50.0, 49.0)]),
        ("wireguard-go", vec![(25.0, 22.0)]),
        ("tailscale", vec![]),
        ("openvpn", vec![]),
        (BARE, vec![(25.0, 25.0)]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_json_has_every_single_value_and_what_they_were_measured_with() {
    let json = serde_json::to_value(report()).unwrap();
    let figures = &json["turns"][4]["outcome"]["figures"];
    assert_eq!(figures["tcp-8-up-gbps"], 6.0);
    let values = &json["tables"][1]["rows"][0]["cells"][1]["values"];
    assert!(values[0].is_null());
    assert_eq!(json["absent"][0]["name"], "openvpn-dco");
    for key in ["command", "commit", "ended", "host", "contestants"] {
        assert!(!json[key].is_null(), "{key}");
    }
}
