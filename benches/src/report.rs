//! `make report`: `benches/RESULTS.md` and its pictures, from the result files.
//!
//! A section shows the result of one command: it names the command, the machine and the commit, and shows its
//! figures and plots. Where the result file is missing, the section says so. Nothing is measured here.

mod claims;
mod contrast;
mod profile;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde::de::DeserializeOwned;

use crate::results::{Picture, Report};
use crate::speedtest::{self, Speedtest};
use crate::{commits, comparison, growth, packets, peers, results, soak};
use profile::Profile;

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
struct Page<'a> {
    results: &'a Path,
    text: String,
    pictures: Vec<Picture>,
}

/// Writes the page, or checks it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Page { text, pictures, .. } = page(&args.results)?;
    let pictures = pictures.into_iter();
    let pictures = pictures.map(|it| (args.results.join(it.file), it.svg));
    for (file, text) in [(args.out.clone(), text)].into_iter().chain(pictures) {
        if args.check {
            let is_equal = fs::read(&file).is_ok_and(|present| present == text.as_bytes());
            let file = file.display();
            ensure!(is_equal, "{file} is out of date (fix: make report)");
        } else {
            results::save_bytes(text.as_bytes(), &file)?;
        }
    }
    Ok(())
}

fn page(results: &Path) -> anyhow::Result<Page<'_>> {
    let mut page = Page {
        results,
        text: HEAD.to_owned(),
        pictures: Vec::new(),
    };
    page.text += &claims::section(results)?;
    page.section::<comparison::Record>("Against other programs", "bench-peers", peers::FILE)?;
    page.section::<Speedtest>("The tunnel", "speedtest-results", speedtest::FILE)?;
    page.text += &contrast::table(results)?;
    let title = "Where the CPU time goes";
    page.section::<Profile>(title, "profile-results", profile::FILE)?;
    page.section::<growth::Record>("How cost grows", "growth", growth::FILE)?;
    let title = "Packet rates of this kernel";
    page.section::<packets::Record>(title, "packet-rate", packets::FILE)?;
    page.section::<commits::Record>("Stages", "bench-stages", commits::STAGES_FILE)?;
    let command = "bench-compare BASE=REF";
    page.section::<commits::Record>("Since another commit", command, commits::FILE)?;
    page.section::<soak::Record>("Soak", "soak", soak::FILE)?;
    Ok(page)
}

impl Page<'_> {
    /// The section of a result file.
    fn section<R: Report + DeserializeOwned>(
        &mut self,
        title: &str,
        command: &str,
        file: &str,
    ) -> anyhow::Result<()> {
        self.text += &format!("\n## {title}\n\n`make {command}`\n\n");
        let Some(result) = results::load::<R>(&self.results.join(file))? else {
            self.text += &format!("There is no `{file}` yet.\n");
            return Ok(());
        };
        self.text += &result.text();
        for picture in result.pictures()? {
            let Picture { title, file, .. } = &picture;
            self.text += &format!("\n![{title}](results/{file})\n");
            self.pictures.push(picture);
        }
        Ok(())
    }
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
    fn the_committed_page_and_pictures_are_those_of_the_committed_results() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let args = Args {
            results: here.join("results"),
            out: here.join("RESULTS.md"),
            check: true,
        };
        run(&args).unwrap();
        let page = fs::read_to_string(args.out).unwrap();
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }
}
