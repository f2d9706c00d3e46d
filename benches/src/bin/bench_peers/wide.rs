//! The wide set: more of what a tunnel is used for, and VPNs of another protocol.
//!
//! 1. [`rows`]: what is compared; [`plan`]: which test gives it, and who takes it.
//! 2. [`suite`]: the repetitions; [`turn`]: all tests of one contestant in one of them.
//! 3. [`way`]: what carries a contestant's packets; [`openvpn`]: those that are no WireGuard.
//! 4. [`tcp`], [`syscalls`], [`curve`]: what the tests measure with.
//! 5. [`report`], [`table`]: what is written.

mod curve;
mod openvpn;
mod plan;
mod report;
mod rows;
mod suite;
mod syscalls;
mod table;
mod tcp;
mod turn;
mod way;

use std::path::{Path, PathBuf};

use convoy_benches::{peers, plot, results};

use crate::args::{Args, Set};

pub(crate) use plan::Test;

/// Measures the wide set, writes it, and prints its tables.
///
/// # Errors
/// When the lab cannot be had, Convoy does not start at all, or a file cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let report = suite::run(args)?;
    print!("{}", table::markdown(&report));
    let Some(file) = args.file(Set::Wide) else {
        return Ok(());
    };
    results::save(&report, &file)?;
    let header = &report.header;
    let contestants = header.contestants.iter().map(|one| &one.name[..]);
    let contestants: Vec<_> = contestants.collect();
    let commit = header.commit.as_deref();
    for (payload, figure) in peers::plots(&report.curves, &contestants, &header.host, commit) {
        results::save_text(&plot::svg(&figure)?, &beside(&file, payload))?;
    }
    eprintln!("every single value: {}", file.display());
    Ok(())
}

/// The plot of a size of packets: `peers-wide.json` has `peers-wide-udp-64.svg`.
fn beside(json: &Path, payload: usize) -> PathBuf {
    let stem = json.file_stem().unwrap_or_default().to_string_lossy();
    json.with_file_name(format!("{stem}-udp-{payload}.svg"))
}
