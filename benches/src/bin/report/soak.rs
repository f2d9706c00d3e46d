//! The soak: its verdicts and its plot.

use std::path::Path;

use convoy_benches::{markdown, origin::Origin};
use serde::Deserialize;

use crate::section::{Section, rows, told};

/// `soak.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Soak {
    header: Header,
    verdicts: Vec<Verdict>,
}

#[derive(Debug, Deserialize)]
struct Header {
    #[serde(flatten)]
    origin: Origin,
    secs: u64,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    what: String,
    passed: bool,
    found: String,
    bound: String,
}

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Soak",
        command: "make soak",
        file: "soak.json",
    };
    section.of(results, |soak: &Soak| {
        let verdict = |verdict: &Verdict| {
            let passed = if verdict.passed { "yes" } else { "**no**" };
            [&verdict.what, passed, &verdict.found, &verdict.bound].map(str::to_owned)
        };
        let head = ["what", "passed", "found", "bound"];
        format!(
            "{} s. {}\n{}\n![The soak over time](results/soak.svg)\n",
            soak.header.secs,
            told(&soak.header.origin),
            markdown::table(&rows(head, soak.verdicts.iter().map(verdict)))
        )
    })
}
