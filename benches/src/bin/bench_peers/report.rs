//! What a run found: the JSON file, and the source of the table.

use convoy_benches::peers::{Cell, NarrowRow, Row, Series, compare};
use serde::Serialize;

use crate::contestants::Contestant;
use crate::header::Header;
use crate::outcome;
use crate::turn::{Details, Outcome};

/// The object in the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) rows: Vec<NarrowRow>,
    /// The veth without a tunnel, once, before the repetitions.
    pub(crate) bare_veth: Outcome,
    /// In the order in which they were measured.
    pub(crate) turns: Vec<TurnReport>,
}

pub(crate) type TurnReport = outcome::TurnReport<Row, Details>;

impl Report {
    /// Compares what `turns` measured in `rows`. Convoy is the first of `contestants`.
    pub(crate) fn new(
        contestants: &[Contestant],
        rows: &[Row],
        repetitions: u32,
        secs: u64,
        bare_veth: Outcome,
        turns: Vec<TurnReport>,
    ) -> Self {
        let row = |&row| narrow_row(row, contestants, repetitions, &bare_veth, &turns);
        let rows = rows.iter().map(row).collect();
        Self {
            header: Header::of_this_run(contestants, repetitions, secs),
            rows,
            bare_veth,
            turns,
        }
    }
}

fn narrow_row(
    row: Row,
    contestants: &[Contestant],
    repetitions: u32,
    bare_veth: &Outcome,
    turns: &[TurnReport],
) -> NarrowRow {
    let series = |one: &Contestant| outcome::series(turns, &one.name, row, repetitions);
    let all: Vec<_> = contestants.iter().map(series).collect();
    // INVARIANT: Convoy always takes part.
    let (convoy, peers) = all.split_first().expect("Convoy is the first");
    let cell = |series: &Series| {
        let is_limited = outcome::is_limited(turns, &series.name, row);
        Cell::new(series.clone(), is_limited)
    };
    NarrowRow {
        row,
        title: row.title().to_owned(),
        bare_veth: bare_veth.figures.get(&row).copied(),
        cells: all.iter().map(cell).collect(),
        convoy_to_best: compare(row, convoy, peers),
    }
}
