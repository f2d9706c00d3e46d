//! `convoy check`: shows the errors and warnings of a configuration.

use std::path::Path;

use anstream::{AutoStream, ColorChoice};
use anyhow::bail;
use convoy_config::{Config, Report};

use crate::{cli::CheckArgs, panics::say};

/// Checks a configuration; fails if it is not valid.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let path = convoy_config::path_of(&args.file);
    let (report, is_valid) = match convoy_config::read(&path) {
        Ok(loaded) => (loaded.warnings, true),
        Err(report) => (report, false),
    };
    show(&report);
    if !is_valid {
        bail!("{} is not valid", path.display());
    }
    if args.strict && !report.is_empty() {
        bail!("{} has warnings", path.display());
    }
    Ok(())
}

/// Reads a configuration and shows what is wrong with it; fails if it is not valid.
pub(crate) fn read(path: &Path) -> anyhow::Result<Config> {
    match convoy_config::read(path) {
        Ok(loaded) => {
            show(&loaded.warnings);
            Ok(loaded.config)
        }
        Err(report) => {
            show(&report);
            bail!("{} is not valid", path.display());
        }
    }
}

/// Shows a report on standard error, unless it is empty.
pub(crate) fn show(report: &Report) {
    if !report.is_empty() {
        let colour = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        say(&format!("{}\n", report.render(colour)));
    }
}
