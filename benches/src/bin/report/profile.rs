//! Where the CPU time goes, with GSO and without.

use std::{collections::BTreeMap, path::Path};

use convoy_benches::{
    markdown::{self, number},
    origin::Origin,
};
use serde::Deserialize;

use crate::section::{Section, rows, told};

pub(crate) const FILE: &str = "profile.json";
pub(crate) const COMMAND: &str = "make profile-results";
/// The event loop's thread.
const EVENT_LOOP: &str = "tunnel";

/// `profile.json`, as far as it is shown; [`convoy_perf`'s documentation] says what each figure counts.
///
/// [`convoy_perf`'s documentation]: ../../../../perf/README.md
#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    origin: Origin,
    pub(crate) gso: Side,
    #[serde(rename = "no-gso")]
    pub(crate) no_gso: Side,
}

/// Both daemons in one configuration.
#[derive(Debug, Deserialize)]
pub(crate) struct Side {
    event: String,
    pub(crate) sends_per_gb: Option<f64>,
    pub(crate) all: Part,
    daemons: [Part; 2],
}

/// Shares of all samples of one daemon, or of both, from 0 to 1.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    samples: u64,
    groups: BTreeMap<String, f64>,
    pub(crate) udp_sendmsg: f64,
    user_copies: BTreeMap<String, f64>,
}

const LEGEND: &str = "
The sender is the daemon at TCP's sending end. A group is of the innermost function that tells; the last
rows are apart from the groups. A send ends, on a veth, where the datagrams lie in the receiver's socket.
The event loop's copies outside of the kernel are those of packets into the stack buffer and out of it
into the queue, and, of what is received, into the writer's batch. Sends are those of both daemons.
";

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Where the CPU time goes",
        command: COMMAND,
        file: FILE,
    };
    section.of(results, |profile: &Profile| {
        let mut text = told(&profile.origin) + "\n";
        text += &format!("TCP through the tunnel, {}.\n\n", profile.samples());
        text += &(markdown::table(&profile.rows()) + LEGEND);
        if results.join("flamegraph-gso.svg").exists() {
            text += "\n![Both daemons with GSO, as a flame graph](results/flamegraph-gso.svg)\n";
        }
        text
    })
}

impl Profile {
    fn samples(&self) -> String {
        let Self { gso, no_gso, .. } = self;
        format!(
            "{} samples of `{}` with GSO, {} without",
            gso.all.samples, gso.event, no_gso.all.samples
        )
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let sides = [&self.gso, &self.no_gso];
        let parts = sides.map(|side| [side.sender(), side.receiver()]);
        let row = |name: &str, share: &dyn Fn(&Part) -> Option<f64>| {
            let percent = |part| number(share(part).map(|share| share * 100.0), 1);
            let [[a, b], [c, d]] = parts.map(|parts| parts.map(percent));
            [name.to_owned(), a, b, c, d]
        };
        let head = [
            "% of CPU time",
            "GSO: sender",
            "receiver",
            "no GSO: sender",
            "receiver",
        ];
        let mut names: Vec<_> = self.gso.all.groups.iter().collect();
        names.sort_by(|a, b| b.1.total_cmp(a.1));
        let groups = names
            .into_iter()
            .map(|(name, _)| row(name, &|part| part.groups.get(name).copied()));
        let last = [
            row("*below `udp(v6)_sendmsg`*", &|part| Some(part.udp_sendmsg)),
            row("*the event loop's copies*", &|part| Some(part.copies())),
        ];
        let [gso, no_gso] = sides.map(|side| number(side.sends_per_gb, 0));
        let none = || "–".to_owned();
        let sends = ["*sends for a GB*".to_owned(), gso, none(), no_gso, none()];
        rows(head, groups.chain(last).chain([sends]))
    }
}

impl Side {
    pub(crate) fn sender(&self) -> &Part {
        &self.daemons[0]
    }

    fn receiver(&self) -> &Part {
        &self.daemons[1]
    }
}

impl Part {
    /// Into the stack buffer and out of it; on the way in, into the writer's batch.
    pub(crate) fn copies(&self) -> f64 {
        self.user_copies.get(EVENT_LOOP).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As `make profile-results` writes it.
    pub(crate) fn profile() -> Profile {
        let part = |samples: u64, sending: f64, copies: f64| {
            format!(
                r#"{{"pid": null, "samples": {samples}, "groups": {{"AEAD": 0.5, "UDP send": 0.125}},
                    "udp_sendmsg": {sending}, "user_copies": {{"tunnel": {copies}, "x": 0.9}}}}"#
            )
        };
        let side = |sending: f64, sends: f64| {
            let parts = [
                (300, sending / 2.0, 0.03),
                (200, sending, 0.041),
                (100, 0.0, 0.0),
            ];
            let [all, sender, receiver] = parts.map(|(n, share, copies)| part(n, share, copies));
            format!(
                r#"{{"what": "", "event": "cycles", "sends_per_gb": {sends}, "all": {all},
                    "daemons": [{sender}, {receiver}]}}"#
            )
        };
        let json = format!(
            r#"{{"origin": {{"host": {{"kernel": "6", "cpu": null, "cpus": 2, "memory_mib": null,
                "root": true}}, "commit": "", "started": "", "began_unix_s": 0, "command": [],
                "versions": []}}, "gso": {}, "no-gso": {}}}"#,
            side(0.16, 25e3),
            side(0.34, 800e3)
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn shares_of_sender_and_receiver_stand_side_by_side_with_gso_and_without() {
        let table = markdown::table(&profile().rows());
        let cells = |row: &str| {
            let row = table.lines().find(|line| line.contains(row)).unwrap();
            let cells = row.split('|').skip(2).map(|cell| cell.trim().to_owned());
            cells.take(4).collect::<Vec<_>>()
        };
        assert_eq!(cells("AEAD"), ["50.0"; 4]);
        assert_eq!(cells("sendmsg"), ["16.0", "0.0", "34.0", "0.0"]);
        assert_eq!(cells("copies"), ["4.1", "0.0", "4.1", "0.0"]);
        assert_eq!(cells("sends"), ["25000", "–", "800000", "–"]);
        let first = table.lines().nth(2).unwrap();
        assert!(first.starts_with("| AEAD"), "the greatest first: {first}");
    }
}
