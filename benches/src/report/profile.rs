//! CPU time by function group, with GSO and without.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::origin::Origin;
use crate::results::Report;
use crate::table::{self, number, percent};

pub(super) const FILE: &str = "profile.json";
/// The event loop's thread.
const EVENT_LOOP: &str = "tunnel";

/// The parts of `profile.json` that the page shows; `perf/README.md` explains the figures.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Profile {
    origin: Origin,
    pub(super) gso: Side,
    #[serde(rename = "no-gso")]
    pub(super) no_gso: Side,
}

/// Both daemons in one configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Side {
    event: String,
    pub(super) sends_per_gb: Option<f64>,
    pub(super) all: Part,
    /// The sender, then the receiver.
    daemons: [Part; 2],
}

/// Shares of all samples of one daemon or of both, from 0 to 1.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    samples: u64,
    groups: BTreeMap<String, f64>,
    pub(super) udp_sendmsg: f64,
    user_copies: BTreeMap<String, f64>,
}

const LEGEND: &str = "
The sender is the daemon at TCP's sending end. The innermost known function decides the group of a sample; the last
rows, in italics, overlap the groups. On a veth, a send includes delivery to the receiver's socket. The event loop's
copies are those outside the kernel: packets into the stack buffer, from it into the queue, and received packets into
the writer's batch. Sends are those of both daemons.
";

impl Report for Profile {
    fn text(&self) -> String {
        let (origin, gso, no_gso) = (self.origin.paragraph(), &self.gso, &self.no_gso);
        format!(
            "{origin}\nTCP through the tunnel, {} samples of `{}` with GSO, {} without.\n\n{}{LEGEND}\n\
             ![Both daemons with GSO, as a flame graph](results/flamegraph-gso.svg)\n",
            gso.all.samples,
            gso.event,
            no_gso.all.samples,
            self.table()
        )
    }
}

impl Profile {
    /// A share without GSO and with GSO.
    pub(super) fn change(&self, share: fn(&Side) -> f64) -> String {
        let [before, after] = [&self.no_gso, &self.gso].map(|side| share(side) * 100.0);
        format!("{before:.0} % → {after:.0} %")
    }

    fn table(&self) -> String {
        let sides = [&self.gso, &self.no_gso];
        let row = |name: &str, share: &dyn Fn(&Part) -> Option<f64>| {
            let parts = sides.iter().flat_map(|side| &side.daemons);
            let shares = parts.map(|part| percent(share(part)));
            [name.to_owned()].into_iter().chain(shares).collect()
        };
        let mut groups: Vec<_> = self.gso.all.groups.iter().collect();
        groups.sort_by(|a, b| b.1.total_cmp(a.1));
        let groups = groups.into_iter();
        let groups = groups.map(|(name, _)| row(name, &|part| part.groups.get(name).copied()));
        let mut rows: Vec<Vec<String>> = groups.collect();
        let sent = |part: &Part| Some(part.udp_sendmsg);
        rows.push(row("*below `udp(v6)_sendmsg`*", &sent));
        rows.push(row("*the event loop's copies*", &|part| {
            Some(part.copies())
        }));
        let [gso, no_gso] = sides.map(|side| number(side.sends_per_gb, 0));
        let sends = ["*sends per GB*", &gso, "–", &no_gso, "–"];
        rows.push(sends.map(str::to_owned).into());
        let head = "% of CPU time | GSO: sender | receiver | no GSO: sender | receiver";
        table::markdown(head, rows)
    }
}

impl Side {
    pub(super) fn sender(&self) -> &Part {
        &self.daemons[0]
    }
}

impl Part {
    /// Copies into and out of the stack buffer, and inbound into the writer's batch.
    pub(super) fn copies(&self) -> f64 {
        self.user_copies.get(EVENT_LOOP).copied().unwrap_or(0.0)
    }
}
