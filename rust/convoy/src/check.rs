//! `convoy check`: shows the errors and warnings of a configuration.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use convoy_config::Config;
use convoy_desired::{foresight, reading::show};

use crate::logging::say;

const AFTER_HELP: &str = "\
Exit status:
  0  the configuration is valid, perhaps with warnings
  1  it is not, or, with --strict, there are warnings
  2  the command line is wrong";

/// The arguments of `convoy check`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CheckArgs {
    /// A configuration file, or NAME for /etc/wireguard/NAME.conf
    #[arg(value_name = "FILE|NAME")]
    pub(crate) file: PathBuf,

    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Checks a configuration; fails if it is not valid.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let path = convoy_config::path_of(&args.file);
    let loaded = match convoy_config::read(&path) {
        Ok(loaded) => loaded,
        Err(report) => {
            show(&report);
            bail!("{} is not valid", path.display());
        }
    };
    show(&loaded.warnings);
    let foreseen = foresee(&loaded.config);
    for warning in &foreseen {
        say(&format!("warning: {warning}\n"));
    }
    if args.strict && !(loaded.warnings.is_empty() && foreseen.is_empty()) {
        bail!("{} has warnings", path.display());
    }
    Ok(())
}

/// Predicts the effects on this host; nothing if they are unknown.
fn foresee(config: &Config) -> Vec<String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let foreseen = builder
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(foresight::foresee(config)));
    foreseen.unwrap_or_else(|error| {
        tracing::debug!("cannot look at this host: {error:#}");
        Vec::new()
    })
}
