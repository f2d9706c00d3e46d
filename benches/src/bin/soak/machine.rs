//! How busy the whole machine is: what others do disturbs what is measured.

use std::fs;

use anyhow::Context as _;
use nix::time::ClockId;

/// Ticks of `/proc/stat` in a second: USER_HZ, which is 100 on every machine that Convoy runs on.
const TICKS: f64 = 100.0;

/// CPU seconds since the start of the machine, and those of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Machine {
    busy_s: f64,
    own_s: f64,
}

impl Machine {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        let own = ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?;
        Ok(Self {
            busy_s: parse(&stat).context("/proc/stat has no CPU time")?,
            own_s: own.tv_sec() as f64 + own.tv_nsec() as f64 / 1e9,
        })
    }

    /// CPU seconds of all other processes since `earlier`, without those of the daemons.
    pub(crate) fn others_since(&self, earlier: &Self, daemons_s: f64) -> f64 {
        let ours = self.own_s - earlier.own_s + daemons_s;
        // The clocks do not tick together.
        (self.busy_s - earlier.busy_s - ours).max(0.0)
    }
}

/// User, nice, system and stolen time of all CPUs (proc_stat(5)); interrupts are our traffic's.
fn parse(stat: &str) -> Option<f64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = all
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [
        user,
        nice,
        system,
        _idle,
        _iowait,
        _irq,
        _softirq,
        steal,
        ..,
    ] = ticks[..]
    else {
        return None;
    };
    Some((user + nice + system + steal) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_work_is_summed_and_idle_time_is_not() {
        let stat = "cpu  100 20 300 9000 7 5 6 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse(stat), Some(5.0));
        assert_eq!(parse("intr 7\n"), None);
    }

    #[test]
    fn others_are_what_is_left() {
        let at = |busy_s, own_s| Machine { busy_s, own_s };
        assert_eq!(at(12.0, 3.0).others_since(&at(10.0, 2.5), 1.0), 0.5);
        assert_eq!(at(12.0, 3.0).others_since(&at(11.9, 2.5), 1.0), 0.0);
    }
}
