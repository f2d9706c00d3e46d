//! Convoy against other programs: the wide set, and VPNs of another protocol.

use std::path::Path;

use convoy_benches::{
    markdown,
    peers::{self, Absent, Curve, Table, WIDE_LEGEND},
    plot, results,
};
use serde::Deserialize;

use crate::{chart::Picture, measured::Measured, section::Section};

const FILE: &str = "peers-wide.json";

/// `peers-wide.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Wide {
    #[serde(flatten)]
    measured: Measured,
    absent: Vec<Absent>,
    tables: Vec<Table>,
    curves: Vec<Curve>,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Against other programs, more widely",
        command: "make bench-peers",
        file: FILE,
    };
    section.of(results, |wide: &Wide| {
        let mut text = wide.measured.told();
        for table in &wide.tables {
            let rows = markdown::table(&peers::wide(table));
            text += &format!("\n### {}\n\n{rows}", table.title);
        }
        text.extend(wide.absent.iter().map(Absent::told));
        let rows = wide.tables.iter().flat_map(|table| &table.rows);
        text + WIDE_LEGEND + peers::limited(rows.flat_map(|row| &row.cells)) + &links(wide)
    })
}

/// The plots, by the names of their files.
pub(crate) fn pictures(results: &Path) -> anyhow::Result<Vec<Picture>> {
    let wide: Option<Wide> = results::load_if_there(&results.join(FILE))?;
    let Some(Wide {
        measured, curves, ..
    }) = wide
    else {
        return Ok(Vec::new());
    };
    let names = measured.contestants.iter().map(|one| &one.name[..]);
    let names: Vec<_> = names.collect();
    let commit = measured.commit.as_deref();
    peers::plots(&curves, &names, &measured.host, commit)
        .into_iter()
        .map(|(payload, figure)| Ok((file_of(payload), plot::svg(&figure)?.into_bytes())))
        .collect()
}

/// As the suite names them, too.
fn file_of(payload: usize) -> String {
    format!("peers-wide-udp-{payload}.svg")
}

fn links(wide: &Wide) -> String {
    let link = |payload| {
        let file = file_of(payload);
        format!("\n![UDP, {payload} bytes: what arrives](results/{file})\n")
    };
    peers::sizes(&wide.curves).into_iter().map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::HEAD;

    #[test]
    fn what_is_drawn_is_what_is_linked() {
        let directory = tempfile::tempdir().unwrap();
        let curve = |payload, points| {
            format!(r#"{{"payload": {payload}, "contestant": "convoy", "points": {points}}}"#)
        };
        let curves = [
            curve(64, "[[25.0, 24.0]]"),
            curve(512, "[]"),
            curve(1_200, "[[25.0, 20.0]]"),
        ];
        let curves = curves.join(",");
        let json = format!(r#"{{{HEAD}, "absent": [], "tables": [], "curves": [{curves}]}}"#);
        std::fs::write(directory.path().join(FILE), json).unwrap();
        let drawn = pictures(directory.path()).unwrap();
        let names: Vec<_> = drawn.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["peers-wide-udp-64.svg", "peers-wide-udp-1200.svg"]);
        let section = section(directory.path()).unwrap();
        assert_eq!(section.matches("](results/peers-wide").count(), 2);
        assert!(names.iter().all(|name| section.contains(name)), "{section}");
    }
}
