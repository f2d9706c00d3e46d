//! What a run found: the JSON file, and the source of the table.

use std::path::Path;

use convoy_benches::results;
use serde::Serialize;

use crate::contestants::Contestant;
use crate::header::Header;
use crate::rows::Row;
use crate::turn::Outcome;
use crate::verdict::{Comparison, Series, compare};

/// The object in the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) header: Header,
    pub(crate) rows: Vec<RowReport>,
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

/// One row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct RowReport {
    pub(crate) row: Row,
    pub(crate) title: &'static str,
    pub(crate) bare_veth: Option<f64>,
    /// In the order of the contestants.
    pub(crate) cells: Vec<Cell>,
    pub(crate) convoy_to_best: Comparison,
}

/// One contestant in a row.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) contestant: String,
    pub(crate) median: Option<f64>,
    /// In at least one repetition.
    pub(crate) generator_limited: bool,
    /// By repetition.
    pub(crate) values: Vec<Option<f64>>,
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
        let row = |&row| RowReport::new(row, contestants, repetitions, &bare_veth, &turns);
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

impl RowReport {
    fn new(
        row: Row,
        contestants: &[Contestant],
        repetitions: u32,
        bare_veth: &Outcome,
        turns: &[TurnReport],
    ) -> Self {
        let cells: Vec<_> = contestants
            .iter()
            .map(|one| Cell::new(row, &one.name, repetitions, turns))
            .collect();
        let series: Vec<_> = cells.iter().map(Cell::series).collect();
        let is_convoy = contestants.iter().map(Contestant::is_convoy);
        let (convoy, peers): (Vec<_>, Vec<_>) =
            series.into_iter().zip(is_convoy).partition(|(_, is)| *is);
        let peers: Vec<_> = peers.into_iter().map(|(series, _)| series).collect();
        let nobody = Series {
            name: String::new(),
            values: Vec::new(),
        };
        let convoy = convoy
            .into_iter()
            .next()
            .map_or(nobody, |(series, _)| series);
        Self {
            row,
            title: row.title(),
            bare_veth: bare_veth.figures.get(&row).copied(),
            convoy_to_best: compare(row, &convoy, &peers),
            cells,
        }
    }
}

impl Cell {
    fn new(row: Row, contestant: &str, repetitions: u32, turns: &[TurnReport]) -> Self {
        let own = |turn: &&TurnReport| turn.contestant == contestant;
        let turns: Vec<_> = turns.iter().filter(own).collect();
        let value = |repetition| {
            let mut turns = turns.iter();
            let turn = turns.find(|turn| turn.repetition == repetition)?;
            turn.outcome.figures.get(&row).copied()
        };
        let values: Vec<_> = (0..repetitions).map(value).collect();
        let is_limited = |turn: &&TurnReport| turn.outcome.generator_limited.contains(&row);
        let mut cell = Self {
            contestant: contestant.to_owned(),
            median: None,
            generator_limited: turns.iter().any(is_limited),
            values,
        };
        cell.median = cell.series().median();
        cell
    }

    fn series(&self) -> Series {
        Series {
            name: self.contestant.clone(),
            values: self.values.clone(),
        }
    }
}
