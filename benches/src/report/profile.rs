//! Where the CPU time goes, with GSO and without.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Page, table};
use crate::origin::Origin;
use crate::table::number;

pub(super) const FILE: &str = "profile.json";
const FLAME_GRAPH: &str = "flamegraph-gso.svg";
/// The event loop's thread.
const EVENT_LOOP: &str = "tunnel";

/// `profile.json`, as far as it is shown; `perf/README.md` explains the figures.
#[derive(Debug, Deserialize)]
pub(super) struct Profile {
    origin: Origin,
    pub(super) gso: Side,
    #[serde(rename = "no-gso")]
    pub(super) no_gso: Side,
}

/// Both daemons in one configuration.
#[derive(Debug, Deserialize)]
pub(super) struct Side {
    event: String,
    pub(super) sends_per_gb: Option<f64>,
    pub(super) all: Part,
    /// The sender and the receiver.
    daemons: [Part; 2],
}

/// Shares of all samples of one daemon, or of both, from 0 to 1.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    samples: u64,
    groups: BTreeMap<String, f64>,
    pub(super) udp_sendmsg: f64,
    user_copies: BTreeMap<String, f64>,
}

const LEGEND: &str = "
The sender is the daemon at TCP's sending end. A group is that of the innermost function that is known; the last
rows are apart from the groups. A send ends, on a veth, where the datagrams lie in the receiver's socket. The event
loop's copies outside of the kernel are those of packets into the stack buffer and out of it into the queue, and, of
received packets, into the writer's batch. Sends are those of both daemons.
";

pub(super) fn section(page: &mut Page) -> anyhow::Result<()> {
    let (title, command) = ("Where the CPU time goes", "make profile-results");
    page.section(title, command, FILE, |page, profile: &Profile| {
        let Profile {
            origin,
            gso,
            no_gso,
        } = profile;
        let mut text = format!(
            "{}\nTCP through the tunnel, {} samples of `{}` with GSO, {} without.\n\n{}{LEGEND}",
            origin.paragraph(),
            gso.all.samples,
            gso.event,
            no_gso.all.samples,
            profile.table()
        );
        if page.results.join(FLAME_GRAPH).exists() {
            text +=
                &format!("\n![Both daemons with GSO, as a flame graph](results/{FLAME_GRAPH})\n");
        }
        Ok(text)
    })
}

impl Profile {
    fn table(&self) -> String {
        let [gso, no_gso] = [&self.gso, &self.no_gso];
        let parts = [
            &gso.daemons[0],
            &gso.daemons[1],
            &no_gso.daemons[0],
            &no_gso.daemons[1],
        ];
        let row = |name: &str, share: &dyn Fn(&Part) -> Option<f64>| {
            let percent = |part| number(share(part).map(|share| share * 100.0), 1);
            let [a, b, c, d] = parts.map(percent);
            [name.to_owned(), a, b, c, d]
        };
        let mut names: Vec<_> = gso.all.groups.iter().collect();
        names.sort_by(|a, b| b.1.total_cmp(a.1));
        let mut rows: Vec<_> = names
            .into_iter()
            .map(|(name, _)| row(name, &|part| part.groups.get(name).copied()))
            .collect();
        rows.push(row("*below `udp(v6)_sendmsg`*", &|part| {
            Some(part.udp_sendmsg)
        }));
        rows.push(row("*the event loop's copies*", &|part| {
            Some(part.copies())
        }));
        let sends = [gso, no_gso].map(|side| number(side.sends_per_gb, 0));
        let [of_gso, of_no_gso] = sends;
        rows.push(["*sends for a GB*", &of_gso, "–", &of_no_gso, "–"].map(str::to_owned));
        table(
            [
                "% of CPU time",
                "GSO: sender",
                "receiver",
                "no GSO: sender",
                "receiver",
            ],
            rows,
        )
    }
}

impl Side {
    pub(super) fn sender(&self) -> &Part {
        &self.daemons[0]
    }
}

impl Part {
    /// Into the stack buffer and out of it; on the way in, into the writer's batch.
    pub(super) fn copies(&self) -> f64 {
        self.user_copies.get(EVENT_LOOP).copied().unwrap_or(0.0)
    }
}
