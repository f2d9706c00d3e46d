//! Costs of a contender's processes on a stand, besides those of a load.

use std::thread;
use std::time::Duration;

use convoy_lab::Pid;
use convoy_lab::measure::process;

use super::{Found, Stand};
use crate::tunnel::Set;
use crate::tunnel::scenes::Figure;

/// Duration of measuring the CPU time without traffic, and of the rest before.
const IDLE: Duration = Duration::from_millis(750);
const REST: Duration = Duration::from_millis(250);

impl Stand {
    pub(super) fn cpu_idle(&mut self) -> anyhow::Result<Found> {
        let Some(&[left, ..]) = self.daemons()?.as_deref() else {
            return Ok(Found::default());
        };
        thread::sleep(REST);
        let before = process::cpu_time(left)?;
        thread::sleep(IDLE);
        let used = process::cpu_time(left)? - before;
        let percent = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
        Ok(Found::of([(Figure::Main, percent)]))
    }

    pub(super) fn memory(&mut self) -> anyhow::Result<Found> {
        let Some(daemons) = self.daemons()? else {
            return Ok(Found::default());
        };
        let most = self.peak(&daemons)?.max(self.earlier_peak);
        Ok(Found::of([(Figure::Main, most as f64 / 1e6)]))
    }

    pub(super) fn forget_peak(&mut self) -> anyhow::Result<()> {
        if let Some(daemons) = self.daemons()? {
            self.earlier_peak = self.earlier_peak.max(self.peak(&daemons)?);
            for daemon in daemons {
                process::forget_peak_memory(daemon)?;
            }
        }
        Ok(())
    }

    /// Peak memory in bytes: of the larger daemon, or of all processes of a rootless program.
    pub(super) fn peak(&self, daemons: &[Pid]) -> anyhow::Result<u64> {
        let each = daemons.iter().map(|&daemon| process::peak_memory(daemon));
        let each: Vec<_> = each.collect::<Result<_, _>>()?;
        Ok(match self.set {
            Set::Programs => each.into_iter().max().unwrap_or(0),
            Set::Rootless | Set::Gateways | Set::Paths => each.into_iter().sum(),
        })
    }
}
