//! The study of packet rates: plots, and a table of one thread on loopback.

use std::path::Path;

use convoy_benches::{
    markdown::{self, number},
    origin::Origin,
};
use convoy_lab::measure::Sample;
use serde::Deserialize;

use crate::section::{Section, rows, told};

pub(crate) const FILE: &str = "packet_rate.json";
pub(crate) const COMMAND: &str = "make packet-rate";

/// `packet_rate.json`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct PacketRates {
    origin: Origin,
    series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    path: String,
    method: String,
    sink: String,
    ports: String,
    threads: usize,
    size: usize,
    rates: Vec<Rate>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    sent_pps: f64,
}

const METHODS: [&str; 3] = ["send-to", "sendmmsg", "gso"];
const PLOTS: [(&str, &str); 3] = [
    ("Packet rate by size", "packet_rate_by_size.svg"),
    ("Bandwidth by size", "bandwidth_by_size.svg"),
    ("Packet rate by threads", "packet_rate_by_threads.svg"),
];

pub(crate) fn section(results: &Path) -> anyhow::Result<String> {
    let section = Section {
        title: "Packet rates of this kernel",
        command: COMMAND,
        file: FILE,
    };
    section.of(results, |rates: &PacketRates| {
        let head = ["bytes", "send_to, kpps", "sendmmsg, kpps", "GSO, kpps"];
        let row = |size: usize| {
            let kpps = METHODS.map(|method| number(rates.kpps(method, size), 0));
            let [one, batch, train] = kpps;
            [size.to_string(), one, batch, train]
        };
        let table = markdown::table(&rows(head, rates.sizes().into_iter().map(row)));
        let plots = PLOTS.map(|(title, file)| format!("\n![{title}](results/{file})\n"));
        format!(
            "{}\nOne thread on loopback to a closed port; all other points are in \
             [packet_rate.csv](results/packet_rate.csv).\n\n{table}{}",
            told(&rates.origin),
            plots.concat()
        )
    })
}

impl PacketRates {
    /// Thousands of datagrams a second of one thread on loopback to a closed port: the median.
    pub(crate) fn kpps(&self, method: &str, size: usize) -> Option<f64> {
        let mut series = self.series.iter();
        let series = series
            .find(|series| series.is_plain() && series.method == method && series.size == size)?;
        let rates = series.rates.iter().map(|rate| rate.sent_pps / 1e3);
        Some(Sample::of(rates.collect())?.median)
    }

    /// What was sent by one thread on loopback, from the smallest on.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let plain = self.series.iter().filter(|series| series.is_plain());
        let mut sizes: Vec<_> = plain.map(|series| series.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl Series {
    fn is_plain(&self) -> bool {
        let by_one = self.threads == 1 && self.ports == "own";
        by_one && self.path == "loopback" && self.sink == "closed"
    }
}
