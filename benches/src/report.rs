//! `make report`: `benches/RESULTS.md` and its pictures, from the result files.
//!
//! A section shows the result of one command: it names the command, the machine and the commit, and shows its
//! figures and plots. Where the result file is missing, the section says so. Nothing is measured here.

mod claims;
mod profile;
mod tunnel;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde::de::DeserializeOwned;

use crate::comparison::Record;
use crate::peers::tables;
use crate::{commits, growth, packets, peers, plot, results, soak, table};

/// Writes the page of all committed results, and its pictures
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the result files are
    #[arg(long, value_name = "DIR", default_value = results::DIRECTORY)]
    results: PathBuf,
    /// The page
    #[arg(long, value_name = "FILE", default_value = results::PAGE)]
    out: PathBuf,
    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

const HEAD: &str = "\
# Results

Written by `make report` from the files in [results](results); do not edit. Absolute figures belong to the
machine that a section names: compare within a section.
";

/// The page, and the pictures by the names of their files.
#[derive(Default)]
struct Page {
    results: PathBuf,
    text: String,
    pictures: Vec<(String, String)>,
}

/// Writes the page, or checks it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Page { text, pictures, .. } = page(&args.results)?;
    let pictures = pictures
        .into_iter()
        .map(|(name, svg)| (args.results.join(name), svg));
    for (file, text) in [(args.out.clone(), text)].into_iter().chain(pictures) {
        if !args.check {
            results::save_bytes(text.as_bytes(), &file)?;
            continue;
        }
        let present = fs::read(&file).unwrap_or_default();
        let is_equal = present == text.as_bytes();
        ensure!(
            is_equal,
            "{} does not match the result files (fix: make report)",
            file.display()
        );
    }
    Ok(())
}

fn page(results: &Path) -> anyhow::Result<Page> {
    let mut page = Page {
        results: results.to_owned(),
        text: HEAD.to_owned(),
        ..Page::default()
    };
    claims::section(&mut page)?;
    page.peers()?;
    tunnel::section(&mut page)?;
    profile::section(&mut page)?;
    page.growth()?;
    page.packets()?;
    page.section(
        "Stages",
        "make bench-stages",
        commits::STAGES_FILE,
        |_, record| Ok(commits::stages_section(record)),
    )?;
    page.section(
        "Since another commit",
        "make bench-compare BASE=REF",
        commits::FILE,
        |_, record| Ok(commits::comparison_section(record)),
    )?;
    page.soak()?;
    Ok(page)
}

impl Page {
    fn load<T: DeserializeOwned>(&self, file: &str) -> anyhow::Result<Option<T>> {
        results::load(&self.results.join(file))
    }

    /// The section of a result file.
    fn section<T: DeserializeOwned>(
        &mut self,
        title: &str,
        command: &str,
        file: &str,
        body: impl FnOnce(&mut Self, &T) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let body = match self.load(file)? {
            Some(result) => body(self, &result)?,
            None => format!("There is no `{file}` yet.\n"),
        };
        self.text += &format!("\n## {title}\n\n`{command}`\n\n{body}");
        Ok(())
    }

    /// Adds a picture, and returns its link.
    fn picture(&mut self, title: &str, file: &str, svg: String) -> String {
        self.pictures.push((file.to_owned(), svg));
        format!("\n![{title}](results/{file})\n")
    }

    fn peers(&mut self) -> anyhow::Result<()> {
        self.section(
            "Against other programs",
            "make bench-peers",
            peers::FILE,
            |page, record: &Record| {
                let mut text = tables::all(record);
                if let Some(bars) = tables::bars(record) {
                    text += &page.picture(
                        "TCP throughput by program",
                        "peers.svg",
                        plot::bars_svg(&bars)?,
                    );
                }
                for (file, svg) in tables::curves(record)? {
                    text += &page.picture("UDP: arrived by sent", &file, svg);
                }
                Ok(text)
            },
        )
    }

    fn growth(&mut self) -> anyhow::Result<()> {
        use growth::record::{AXES, LEGEND, Record};
        self.section("How cost grows", "make growth", growth::FILE, |page, record: &Record| {
            let mut text = format!(
                "{}\n{} interleaved rounds, {} s a test. {LEGEND} All peers busy one after the other: `make bench ARGS=peers`.\n",
                record.origin.paragraph(), record.rounds, record.secs
            );
            for axis in &AXES {
                text += &format!("\n### {}\n\n{}", axis.title, record.table(axis));
                text += &page.picture(axis.title, axis.plot, plot::svg(&record.figure(axis))?);
            }
            Ok(text)
        })
    }

    fn packets(&mut self) -> anyhow::Result<()> {
        use packets::record::Record;
        let (title, command) = ("Packet rates of this kernel", "make packet-rate");
        self.section(title, command, packets::FILE, |page, record: &Record| {
            let mut text = format!(
                "{}\nOne thread on loopback to a closed port; all other points are in \
                 [packet_rate.csv](results/packet_rate.csv).\n\n{}",
                record.origin.paragraph(),
                record.table()
            );
            for (file, figure) in record.figures() {
                text += &page.picture(&figure.title, file, plot::svg(&figure)?);
            }
            Ok(text)
        })
    }

    fn soak(&mut self) -> anyhow::Result<()> {
        use soak::record::Record;
        self.section("Soak", "make soak", soak::FILE, |page, record: &Record| {
            let verdicts = record.verdicts.iter().map(|verdict| {
                let passed = if verdict.passed { "yes" } else { "**no**" };
                format!(
                    "- {}: {passed}. {} (bound: {}).\n",
                    verdict.what, verdict.found, verdict.bound
                )
            });
            let (secs, origin) = (record.header.secs, record.header.origin.paragraph());
            let text = format!("{secs} s. {origin}\n{}", verdicts.collect::<String>());
            Ok(text
                + &page.picture(
                    "The soak over time",
                    soak::PLOT,
                    plot::svg(&record.figure())?,
                ))
        })
    }
}

/// A table with this head.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let head = head.map(str::to_owned);
    table::markdown([head].into_iter().chain(rows).map(Vec::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_results_every_section_names_its_command() {
        let text = page(Path::new("/nowhere")).unwrap().text;
        let sections: Vec<_> = text.split("\n## ").skip(1).collect();
        assert_eq!(sections.len(), 9);
        assert!(
            sections.iter().all(|section| section.contains("`make ")),
            "{text}"
        );
    }

    #[test]
    fn the_committed_results_can_be_read_and_no_table_is_wider_than_120_columns() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let text = page(&results).unwrap().text;
        for line in text.lines().filter(|line| line.starts_with('|')) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }
}
