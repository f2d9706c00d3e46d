//! How cost grows: a table and a plot for each thing it grows with.

use std::path::Path;

use convoy_benches::growth::{Axis, FILE, LEGEND, Record};

use crate::section::{Section, told};

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "How cost grows",
        command: "make growth",
        file: FILE,
    };
    section.of(results, |record: &Record| {
        let axes = Axis::ALL.map(|axis| {
            format!(
                "\n### {}\n\n{}\n![{}](results/{})\n",
                axis.title(),
                record.table(axis),
                axis.title(),
                axis.plot()
            )
        });
        format!(
            "{}\n{} rounds in turns, {} s a test. {LEGEND} All peers busy in turn: `make bench ARGS=peers`.\n{}",
            told(&record.origin),
            record.rounds,
            record.secs,
            axes.concat()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    #[test]
    fn every_axis_has_its_table_and_its_plot() {
        let results = env::temp_dir().join(format!("convoy-growth-{}", std::process::id()));
        fs::create_dir_all(&results).unwrap();
        let example = include_str!("../../growth/example.json");
        fs::write(results.join(FILE), example).unwrap();
        let text = section(&results);
        fs::remove_dir_all(&results).unwrap();
        let text = text.unwrap();
        for axis in Axis::ALL {
            let plot = format!("](results/{})", axis.plot());
            assert!(text.contains(&plot), "{text}");
            assert!(text.contains(&format!("| {} ", axis.label())), "{text}");
        }
        assert!(text.contains("3 rounds in turns, 2 s a test."), "{text}");
    }
}
