//! Convoy against other programs.

use std::path::Path;

use convoy_benches::{
    markdown,
    peers::{self, NARROW_LEGEND, NarrowRow},
};
use serde::Deserialize;

use crate::{measured::Measured, section::Section};

pub(crate) const FILE: &str = "peers.json";

/// `peers.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Peers {
    #[serde(flatten)]
    pub(crate) measured: Measured,
    pub(crate) rows: Vec<NarrowRow>,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Against other programs",
        command: "make bench-peers",
        file: FILE,
    };
    section.of(results, |Peers { measured, rows }| {
        let names = measured.contestants.iter().map(|one| &one.name[..]);
        let table = markdown::table(&peers::narrow(names, rows));
        let limited = peers::limited(rows.iter().flat_map(|row| &row.cells));
        measured.told() + "\n" + &table + NARROW_LEGEND + limited
    })
}
