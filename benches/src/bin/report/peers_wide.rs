//! Convoy against other programs: the wide set, and VPNs of another protocol.

use std::path::Path;

use convoy_benches::{
    markdown,
    peers::{self, Absent, Table, WIDE_LEGEND},
};
use serde::Deserialize;

use crate::{measured::Measured, section::Section};

/// `peers-wide.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Wide {
    #[serde(flatten)]
    measured: Measured,
    absent: Vec<Absent>,
    tables: Vec<Table>,
    curves: Vec<Curve>,
}

#[derive(Debug, Deserialize)]
struct Curve {
    payload: usize,
    points: Vec<(f64, f64)>,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Against other programs, more widely",
        command: "make bench-peers",
        file: "peers-wide.json",
    };
    section.of(results, |wide: &Wide| {
        let mut text = wide.measured.told();
        for table in &wide.tables {
            let rows = markdown::table(&peers::wide(table));
            text += &format!("\n### {}\n\n{rows}", table.title);
        }
        text.extend(wide.absent.iter().map(Absent::told));
        let rows = wide.tables.iter().flat_map(|table| &table.rows);
        text + WIDE_LEGEND + peers::limited(rows.flat_map(|row| &row.cells)) + &plots(wide)
    })
}

/// One for each size of which anything was sent; the suite names the files.
fn plots(wide: &Wide) -> String {
    let drawn = wide.curves.iter().filter(|curve| !curve.points.is_empty());
    let mut payloads: Vec<_> = drawn.map(|curve| curve.payload).collect();
    payloads.dedup();
    let plot = |payload| {
        format!("\n![UDP, {payload} bytes: what arrives](results/peers-wide-udp-{payload}.svg)\n")
    };
    payloads.into_iter().map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::HEAD;

    #[test]
    fn every_size_that_was_sent_has_its_plot_once() {
        let curve = |payload, points| Curve { payload, points };
        let wide = Wide {
            measured: serde_json::from_str(&format!("{{{HEAD}}}")).unwrap(),
            absent: Vec::new(),
            tables: Vec::new(),
            curves: vec![
                curve(64, vec![(25.0, 25.0)]),
                curve(64, vec![(25.0, 24.0)]),
                curve(512, Vec::new()),
                curve(1_200, vec![(25.0, 20.0)]),
            ],
        };
        let plots = plots(&wide);
        assert_eq!(plots.matches("udp-64.svg").count(), 1);
        assert!(!plots.contains("udp-512") && plots.contains("udp-1200.svg"));
    }
}
