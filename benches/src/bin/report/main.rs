//! `make report`: `benches/RESULTS.md`, made anew of the result files, and what is drawn of several.
//!
//! A section is what one command has found: it names the command, says on what machine and at which
//! commit it ran, and shows its figures and plots. Where the result file is missing, the section says
//! how to make it. Nothing is measured here.
//!
//! 1. [`section`]: what all sections have in common.
//! 2. [`claims`]: what the design promises, row by row, from all files.
//! 3. [`peers`] and [`peers_wide`] with [`measured`], [`tunnel`] with [`batches`], [`profile`],
//!    [`growth`], [`packet_rate`], [`stages`], [`soak`]: a section each.
//! 4. [`readme`]: the table of the README; [`chart`]: its picture.

mod batches;
mod chart;
mod claims;
mod growth;
mod measured;
mod packet_rate;
mod peers;
mod peers_wide;
mod profile;
mod readme;
mod section;
mod soak;
mod stages;
mod tunnel;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use convoy_benches::results;

/// Writes the report of all committed results.
#[derive(Debug, Parser)]
struct Args {
    /// Where the result files are
    #[arg(long, value_name = "DIR", default_value = results::DIRECTORY)]
    results: PathBuf,
    /// The report
    #[arg(long, value_name = "FILE", default_value = results::PAGE)]
    out: PathBuf,
    /// What has a table between marks
    #[arg(long, value_name = "FILE", default_value = "README.md")]
    readme: PathBuf,
    /// Write nothing; fail if the report is not what it would be
    #[arg(long)]
    check: bool,
}

const HEAD: &str = "\
# Results

Made by `make report` of the files in [results](results); do not edit. Absolute figures belong to the
machine that a section names: compare within a section.
";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("report: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let pictures = chart::pictures(&args.results)?;
    let page = text(&args.results, &pictures)?.into_bytes();
    let readme = results::load_text(&args.readme)?;
    let readme = readme::updated(&readme, &args.results)
        .with_context(|| args.readme.display().to_string())?;
    let pictures = pictures
        .into_iter()
        .chain(peers_wide::pictures(&args.results)?);
    let pictures = pictures.map(|(name, bytes)| (args.results.join(name), bytes));
    let texts = [(&args.out, page), (&args.readme, readme.into_bytes())];
    let texts = texts.map(|(file, bytes)| (file.clone(), bytes));
    for (file, bytes) in texts.into_iter().chain(pictures) {
        if !args.check {
            results::save_bytes(&bytes, &file)?;
            continue;
        }
        let present = fs::read(&file).unwrap_or_default();
        ensure!(
            present == bytes,
            "{} is not what the result files say (fix: make report)",
            file.display()
        );
    }
    Ok(())
}

/// The whole page.
fn text(results: &Path, pictures: &[chart::Picture]) -> anyhow::Result<String> {
    let sections = [
        claims::section(results)?,
        peers::section(results)? + chart::link(pictures),
        peers_wide::section(results)?,
        tunnel::section(results)?,
        profile::section(results)?,
        growth::section(results)?,
        packet_rate::section(results)?,
        stages::section(results)?,
        stages::comparison(results)?,
        soak::section(results)?,
    ];
    Ok(HEAD.to_owned() + &sections.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_results_every_section_names_its_command() {
        let text = text(Path::new("/nowhere"), &[]).unwrap();
        let sections: Vec<_> = text.split("\n## ").skip(1).collect();
        assert_eq!(sections.len(), 10);
        for section in sections {
            assert!(section.contains("`make "), "{section}");
        }
    }

    #[test]
    fn the_committed_results_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let pictures = chart::pictures(&directory).unwrap();
        text(&directory, &pictures).unwrap();
    }
}
