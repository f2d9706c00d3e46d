//! What a result belongs to: machine, versions, command line.

use std::{path::Path, process::Command};

use convoy_benches::origin::{Origin, first_line_of};
use serde::{Deserialize, Serialize};

/// What a result belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// How long the load lasted.
    pub(crate) secs: u64,
    /// Mbit/s of each stream; 0: as fast as TCP goes.
    pub(crate) rate_mbps: f64,
    /// The daemon under test, and those of the spokes.
    pub(crate) daemons: Vec<String>,
}

impl Header {
    /// The header of a run that begins now.
    pub(crate) fn new(
        program: &Path,
        secs: u64,
        rate_mbps: f64,
        daemons: Vec<String>,
    ) -> anyhow::Result<Self> {
        let versions = vec![
            first_line_of(Command::new(program).arg("--version"))?,
            first_line_of(Command::new("wg").arg("--version"))?,
        ];
        Ok(Self {
            origin: Origin::of_this_run(versions),
            secs,
            rate_mbps,
            daemons,
        })
    }
}
