//! What a run found: the JSON file, and the source of the table.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use convoy_benches::origin::{commit, first_line_of};
use convoy_benches::results;
use convoy_lab::measure::Host;
use serde::Serialize;

use crate::contestants::Contestant;
use crate::rows::Row;
use crate::turn::Outcome;
use crate::verdict::{Comparison, Series, compare};

/// The object in the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) command: Vec<String>,
    /// Of this repository, `-dirty` where files are changed; none outside of one.
    pub(crate) commit: Option<String>,
    /// Seconds since 1970 (UTC) when the run ended.
    pub(crate) ended: u64,
    pub(crate) host: Host,
    pub(crate) iperf3: Option<String>,
    pub(crate) repetitions: u32,
    /// Seconds of a TCP run.
    pub(crate) secs: u64,
    pub(crate) contestants: Vec<Entry>,
    pub(crate) rows: Vec<RowReport>,
    /// The veth without a tunnel, once, before the repetitions.
    pub(crate) bare_veth: Outcome,
    /// In the order in which they were measured.
    pub(crate) turns: Vec<TurnReport>,
}

/// Who took part.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    program: PathBuf,
    arguments: Vec<String>,
    /// What was set on its interface; none is what the program sets.
    txqueuelen: Option<u32>,
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
            command: std::env::args().collect(),
            commit: commit().ok(),
            ended: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            host: Host::of_this_machine(),
            iperf3: first_line_of(Command::new("iperf3").arg("--version")).ok(),
            repetitions,
            secs,
            contestants: contestants.iter().map(Entry::new).collect(),
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

impl Entry {
    fn new(contestant: &Contestant) -> Self {
        Self {
            name: contestant.name.clone(),
            version: contestant.version(),
            program: contestant.program.clone(),
            arguments: contestant.arguments.clone(),
            txqueuelen: contestant.queue_length,
        }
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
