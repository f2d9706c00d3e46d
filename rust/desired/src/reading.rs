//! Reads a configuration for a program that a user started, and shows what is wrong with it.

use std::path::Path;

use anstream::{AutoStream, ColorChoice};
use anyhow::bail;
use convoy_config::{Config, Report};
use convoy_process::logging::say_rendered;

/// Reads a configuration and shows what is wrong with it; fails if it is not valid.
pub fn read(path: &Path) -> anyhow::Result<Config> {
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
pub fn show(report: &Report) {
    if !report.is_empty() {
        let colour = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        say_rendered(&format!("{}\n", report.render(colour)));
    }
}
