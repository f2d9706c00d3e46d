//! What a run found: the JSON file, and the source of the table.

use std::path::Path;

use convoy_benches::{
    peers::{Cell, NarrowRow, Row, Series, compare},
    results,
};
use serde::Serialize;

use crate::contestants::Contestant;
use crate::header::Header;
use crate::turn::Outcome;

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

/// One contestant in one repetition.
#[derive(Debug, Serialize)]
pub(crate) struct TurnReport {
    /// From 0.
    pub(crate) repetition: u32,
    pub(crate) contestant: String,
    pub(crate) outcome: Outcome,
}

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

    /// Writes the JSON file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        Ok(results::save(self, path)?)
    }
}

fn narrow_row(
    row: Row,
    contestants: &[Contestant],
    repetitions: u32,
    bare_veth: &Outcome,
    turns: &[TurnReport],
) -> NarrowRow {
    let series = |one: &Contestant| Series {
        name: one.name.clone(),
        values: values(row, &one.name, repetitions, turns),
    };
    let all: Vec<_> = contestants.iter().map(series).collect();
    // INVARIANT: Convoy always takes part.
    let (convoy, peers) = all.split_first().expect("Convoy is the first");
    let cell = |series: &Series| Cell::new(series.clone(), is_limited(row, &series.name, turns));
    NarrowRow {
        row,
        title: row.title().to_owned(),
        bare_veth: bare_veth.figures.get(&row).copied(),
        cells: all.iter().map(cell).collect(),
        convoy_to_best: compare(row, convoy, peers),
    }
}

fn values(row: Row, contestant: &str, repetitions: u32, turns: &[TurnReport]) -> Vec<Option<f64>> {
    let value = |repetition| {
        let mut turns = turns.iter();
        let turn =
            turns.find(|turn| turn.contestant == contestant && turn.repetition == repetition)?;
        turn.outcome.figures.get(&row).copied()
    };
    (0..repetitions).map(value).collect()
}

fn is_limited(row: Row, contestant: &str, turns: &[TurnReport]) -> bool {
    let mut own = turns.iter().filter(|turn| turn.contestant == contestant);
    own.any(|turn| turn.outcome.generator_limited.contains(&row))
}
