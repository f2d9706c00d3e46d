//! Pairs of configurations that a speed test compares.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;

/// Two configurations of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contrast {
    Gso,
    TunOffload,
    Batch,
    Shape,
}

/// One of the two configurations.
#[derive(Serialize)]
pub(super) struct Side {
    pub(super) name: &'static str,
    /// The daemons' switches, as on their command line.
    pub(super) daemon: Vec<String>,
}

impl Contrast {
    /// The two configurations, each with the switches in `common`.
    pub(super) fn sides(self, common: &[String]) -> Result<[Side; 2]> {
        let [a, b] = match self {
            Self::Gso => [("gso", "--gso on"), ("no gso", "--gso off")],
            Self::TunOffload => [
                ("tun offload", "--tun-offload on"),
                ("no tun offload", "--tun-offload off"),
            ],
            Self::Batch => [("batch 50", "--batch 50"), ("batch 1", "--batch 1")],
            Self::Shape => [
                ("gso, batch 50", "--gso on --batch 50"),
                ("no gso, batch 1", "--gso off --batch 1"),
            ],
        };
        let mut set = a.1.split(' ').filter(|word| word.starts_with("--"));
        if let Some(switch) = set.find(|&set| common.iter().any(|given| given == set)) {
            bail!("the comparison sets {switch} itself");
        }
        Ok([a, b].map(|(name, switches)| {
            let switches = switches.split(' ').map(str::to_owned);
            let daemon = common.iter().cloned().chain(switches).collect();
            Side { name, daemon }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_for_both_come_with_the_contrast_unless_it_sets_them() {
        let common = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let [a, b] = Contrast::Gso.sides(&common("--batch 9")).unwrap();
        assert_eq!(a.daemon, ["--batch", "9", "--gso", "on"]);
        assert_eq!(b.daemon, ["--batch", "9", "--gso", "off"]);
        assert!(Contrast::Shape.sides(&common("--gso off")).is_err());
        assert!(Contrast::Batch.sides(&common("--gso off")).is_ok());
    }
}
