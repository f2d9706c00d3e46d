//! The speed against other programs as bars: `peers.svg`, and `peers.png` for the README.

use std::path::Path;

use convoy_benches::{
    markdown::cell,
    peers::{COLOURS, Row},
    plot::{BarSeries, Bars, bars_png, bars_svg},
    results,
};

use crate::peers::{self, Peers};

/// The rows that are drawn, with what they are called.
const GROUPS: [(Row, &str); 4] = [
    (Row::TcpUp, "TCP up"),
    (Row::TcpDown, "TCP down"),
    (Row::Tcp4, "TCP up, 4 streams"),
    (Row::TcpBoth, "TCP both ways, the sum"),
];

/// A file that is drawn, by its name in the results.
pub(crate) type Picture = (String, Vec<u8>);

/// What there is to draw; nothing where nobody was compared.
pub(crate) fn pictures(results: &Path) -> anyhow::Result<Vec<Picture>> {
    let peers: Option<Peers> = results::load_if_there(&results.join(peers::FILE))?;
    let Some(bars) = peers.as_ref().and_then(bars) else {
        return Ok(Vec::new());
    };
    Ok(vec![
        ("peers.svg".to_owned(), bars_svg(&bars)?.into_bytes()),
        ("peers.png".to_owned(), bars_png(&bars)?),
    ])
}

/// The end of the section about other programs.
pub(crate) fn link(pictures: &[Picture]) -> &'static str {
    match pictures {
        [] => "",
        _ => "\n![TCP throughput by program](results/peers.svg)\n",
    }
}

/// Every contestant as it is by default, in every group that was measured.
fn bars(peers: &Peers) -> Option<Bars> {
    let shown = |(row, title): &(Row, &str)| {
        let row = peers.rows.iter().find(|found| found.row == *row)?;
        row.cells
            .iter()
            .any(|cell| cell.median.is_some())
            .then(|| ((*title).to_owned(), row))
    };
    let (groups, rows): (Vec<_>, Vec<_>) = GROUPS.iter().filter_map(shown).unzip();
    let contestants = peers.measured.contestants.iter().enumerate();
    let defaults = contestants.filter(|(_, one)| one.is_default());
    let series = defaults.zip(COLOURS.into_iter().cycle());
    let series = series.map(|((place, contestant), colour)| BarSeries {
        name: contestant.name.clone(),
        colour,
        values: rows
            .iter()
            .map(|row| row.cells.get(place)?.median)
            .collect(),
    });
    let measured = &peers.measured;
    let bars = Bars {
        title: "TCP through a tunnel between two namespaces of one machine".to_owned(),
        subtitle: format!(
            "medians of {} repetitions in turns · {} · commit {}",
            measured.repetitions,
            measured.host,
            cell(measured.commit.as_ref())
        ),
        y_label: "Gbit/s".to_owned(),
        groups,
        series: series.collect(),
    };
    (!bars.groups.is_empty()).then_some(bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::HEAD;

    fn peers(median: &str) -> Peers {
        let cell =
            |median| format!(r#"{{"median": {median}, "generator_limited": false, "values": []}}"#);
        let row = |name, cells: &[String]| {
            let cells = cells.join(",");
            format!(
                r#"{{"row": "{name}", "title": "", "bare_veth": null, "cells": [{cells}], "convoy_to_best":
                    {{"best_peer": null, "ratio": null, "must": "", "verdict": "unknown"}}}}"#
            )
        };
        let cells = [median, "null", median].map(cell);
        let rows = [row("cpu", &[]), row("tcp-both", &[]), row("tcp-up", &cells)];
        let json = format!(r#"{{{HEAD}, "rows": [{}]}}"#, rows.join(","));
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn every_program_is_drawn_as_it_is_by_default_in_what_was_measured() {
        let bars = bars(&peers("5.5")).unwrap();
        assert_eq!(bars.groups, ["TCP up"]);
        let names: Vec<_> = bars.series.iter().map(|one| &one.name[..]).collect();
        assert_eq!(names, ["convoy", "gotatun"]);
        assert_eq!(bars.series[1].values, [Some(5.5)]);
        assert!(bars.subtitle.contains("commit abc"), "{}", bars.subtitle);
    }

    #[test]
    fn without_figures_nothing_is_drawn() {
        assert!(bars(&peers("null")).is_none());
        let pictures = pictures(Path::new("/nowhere")).unwrap();
        assert!(pictures.is_empty());
        assert_eq!(link(&pictures), "");
    }
}
