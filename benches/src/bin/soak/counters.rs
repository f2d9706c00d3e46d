//! What a daemon has counted, as `convoy stats --json` tells it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use convoy_lab::wireguard::Daemon;
use serde::Deserialize;

/// Convoy answers on one line, which is what `convoy stats --json` prints.
const REQUEST: &str = "get=convoy_stats\n\n";
const ANSWER: &str = "convoy_stats=";

/// Counts since the daemon's start.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Counters {
    /// By reason.
    pub(crate) drops: BTreeMap<String, u64>,
    pub(crate) outbound: Traffic,
    pub(crate) inbound: Traffic,
}

/// Packets in the clear.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
}

impl Counters {
    /// Asks a daemon.
    pub(crate) fn read(daemon: &Daemon) -> anyhow::Result<Self> {
        let answer = daemon.request(REQUEST)?;
        let mut lines = answer.lines();
        let json = lines.find_map(|line| line.strip_prefix(ANSWER));
        Self::parse(json.context("the daemon is not convoy")?)
    }

    /// What was dropped since `earlier`, by reason; only what was.
    pub(crate) fn drops_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let new = self.drops.iter().map(|(reason, now)| {
            let before = earlier.drops.get(reason).copied().unwrap_or(0);
            (reason.clone(), now - before.min(*now))
        });
        new.filter(|(_, count)| *count > 0).collect()
    }

    fn parse(json: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Report {
            counters: Counters,
        }
        let report: Report = serde_json::from_str(json).context("read the daemon's counters")?;
        Ok(report.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(replays: u64) -> Counters {
        let json = format!(
            r#"{{"version":"0.1.0","counters":{{"outbound":{{"packets":1,"bytes":60}},
               "inbound":{{"packets":2,"bytes":90}},"ticks":9,
               "drops":{{"inbound_replay":{replays},"inbound_bad_tag":4}}}},"peers":[]}}"#
        );
        Counters::parse(&json).unwrap()
    }

    #[test]
    fn drops_are_told_by_reason_and_only_new_ones() {
        assert_eq!(counters(7).outbound.bytes, 60);
        assert_eq!(counters(7).inbound.bytes, 90);
        let new = counters(7).drops_since(&counters(5));
        assert_eq!(new, BTreeMap::from([("inbound_replay".to_owned(), 2)]));
    }
}
