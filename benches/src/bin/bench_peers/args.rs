//! What can be asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use convoy_benches::{peers::Row, results};

use crate::contestants::{self, Contestant, Protocol};
use crate::wide::Test;

/// Measures Convoy and other WireGuard programs in turns, and prints a table.
#[derive(Debug, Clone, Parser)]
#[command(after_help = BUDGET)]
pub(crate) struct Args {
    /// Repetitions, 9 of the narrow set and 5 of the wide one by default; an interval of 95 % takes six
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    reps: Option<u32>,

    /// Seconds of each TCP run
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    secs: u32,

    /// One repetition with TCP runs of a second: shows that all works, not who is faster
    #[arg(long, conflicts_with_all = ["reps", "secs"])]
    quick: bool,

    /// Only this set; else both, but for what --rows or --tests leave out
    #[arg(long, value_name = "SET", value_enum)]
    set: Option<Set>,

    /// Of the narrow set only these rows; without --tests nothing of the wide one
    #[arg(long, value_name = "A,B", value_enum, value_delimiter = ',')]
    rows: Vec<Row>,

    /// Of the wide set only these tests; without --rows nothing of the narrow one
    #[arg(long, value_name = "A,B", value_enum, value_delimiter = ',')]
    tests: Vec<Test>,

    /// Only these programs, and Convoy; `NAME+q` is NAME with Convoy's txqueuelen on its interface
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    contestants: Vec<String>,

    /// Where every single value of the narrow set is written to [default: benches/results/peers.json;
    /// nowhere of a trial, or of some rows or programs]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The same of the wide set, peers-wide.json; its plots lie beside
    #[arg(long, value_name = "FILE")]
    wide_json: Option<PathBuf>,

    /// Convoy
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,

    /// The directory of the other programs, as `make peers` fills it
    #[arg(long, value_name = "DIR", default_value = "target/peers/bin")]
    peers: PathBuf,
}

const BUDGET: &str = "\
Narrow set: time, by default, for one contestant in one repetition:
  start, handshake, end                  1 s
  CPU without traffic, ping              2 s
  TCP: up, down, 4 streams, both ways,
       up with the veth cutting         12 s   5 x (--secs + iperf3's 0.4)
  200 kpps of 1,200 B                    1 s
  two searches of a UDP rate            12 s   10 probes of 0.5 s each
9 contestants in 9 repetitions: about 42 minutes.

Wide set: time, by default, for one contestant in one repetition:
  start, handshake, end                  1 s
  requests, idle and loaded; connections 6 s
  TCP: 8 streams up and down, 1 % loss  11 s   3 x (--secs + 1 with calls counted + iperf3's 0.8)
  UDP: 8 rates of 3 sizes               16 s   less where most is lost
5 contestants in 5 repetitions, and two OpenVPNs that take half as long: 15 minutes by this sum.";

/// What is measured in one go, with a table and a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Set {
    /// What is asked of Convoy, row by row
    Narrow,
    /// More loads, curves and system calls; and VPNs of another protocol
    Wide,
}

impl Args {
    pub(crate) fn includes(&self, set: Set) -> bool {
        let (own, other) = match set {
            Set::Narrow => (self.rows.is_empty(), self.tests.is_empty()),
            Set::Wide => (self.tests.is_empty(), self.rows.is_empty()),
        };
        self.set.map_or(!own || other, |only| only == set)
    }

    /// Where a set is written to. A part of it, or a trial, is no result to keep unless a file is named.
    pub(crate) fn file(&self, set: Set) -> Option<PathBuf> {
        let (named, usual, is_part) = match set {
            Set::Narrow => (&self.json, "peers.json", !self.rows.is_empty()),
            Set::Wide => (&self.wide_json, "peers-wide.json", !self.tests.is_empty()),
        };
        let is_whole = !self.quick && !is_part && self.contestants.is_empty();
        let usual = || is_whole.then(|| Path::new(results::DIRECTORY).join(usual));
        named.clone().or_else(usual)
    }

    pub(crate) fn repetitions(&self, set: Set) -> u32 {
        let usual = match set {
            Set::Narrow => 9,
            Set::Wide => 5,
        };
        if self.quick {
            1
        } else {
            self.reps.unwrap_or(usual)
        }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { self.secs.into() })
    }

    /// The rows, in the order of the table.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let asked = |row: &Row| self.rows.is_empty() || self.rows.contains(row);
        Row::ALL.into_iter().filter(asked).collect()
    }

    /// The tests of the wide set, in their order.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let asked = |test: &Test| self.tests.is_empty() || self.tests.contains(test);
        Test::ALL.into_iter().filter(asked).collect()
    }

    /// Who takes part; Convoy is the first.
    ///
    /// # Errors
    /// When a name is nobody's, or a program is not there.
    pub(crate) fn contestants(&self) -> anyhow::Result<Vec<Contestant>> {
        self.chosen(contestants::all(&self.convoy, &self.peers))
    }

    /// The same of the wide set; VPNs of another protocol need not be there.
    ///
    /// # Errors
    /// As [`Self::contestants`].
    pub(crate) fn wide_contestants(&self) -> anyhow::Result<Vec<Contestant>> {
        self.chosen(contestants::wide(&self.convoy, &self.peers))
    }

    fn chosen(&self, of: Vec<Contestant>) -> anyhow::Result<Vec<Contestant>> {
        let mut all = contestants::all(&self.convoy, &self.peers);
        let wide = contestants::wide(&self.convoy, &self.peers);
        let others = wide.into_iter();
        all.extend(others.filter(|one| one.protocol != Protocol::WireGuard));
        let is_known = |name: &&String| all.iter().any(|one| one.name == **name);
        if let Some(stranger) = self.contestants.iter().find(|name| !is_known(name)) {
            let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
            bail!(
                "nobody is called {stranger}; there are {}",
                names.join(", ")
            );
        }
        let asked = |one: &Contestant| {
            one.is_convoy() || self.contestants.is_empty() || self.contestants.contains(&one.name)
        };
        let chosen: Vec<_> = of.into_iter().filter(asked).collect();
        for one in &chosen {
            if one.protocol == Protocol::WireGuard && !one.program.is_file() {
                let program = one.program.display();
                bail!("{program} is not there (fix: make bench-peers, which installs it)");
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Args {
        Args::parse_from([&["bench_peers"], arguments].concat())
    }

    #[test]
    fn quick_is_one_repetition_of_a_second() {
        let args = parse(&["--quick"]);
        assert_eq!(args.repetitions(Set::Narrow), 1);
        assert_eq!(args.window(), Duration::from_secs(1));
        let usual = [Set::Narrow, Set::Wide].map(|set| parse(&[]).repetitions(set));
        assert_eq!(usual, [9, 5]);
        assert_eq!(parse(&["--reps", "7"]).repetitions(Set::Wide), 7);
    }

    #[test]
    fn only_a_whole_set_is_kept_without_being_asked() {
        let files = |arguments: &[&str]| {
            let args = parse(arguments);
            [Set::Narrow, Set::Wide].map(|set| args.file(set))
        };
        let [narrow, wide] = ["peers.json", "peers-wide.json"]
            .map(|name| Some(Path::new("benches/results").join(name)));
        assert_eq!(files(&[]), [narrow.clone(), wide.clone()]);
        assert_eq!(files(&["--rows", "cpu"]), [None, wide]);
        assert_eq!(files(&["--tests", "tcp-up"]), [narrow, None]);
        assert_eq!(files(&["--quick"]), [None, None]);
        assert_eq!(files(&["--contestants", "gotatun"]), [None, None]);
        let named = files(&["--quick", "--json", "a.json"]);
        assert_eq!(named, [Some(PathBuf::from("a.json")), None]);
    }

    #[test]
    fn both_sets_are_measured_unless_one_is_asked_for() {
        let sets = |arguments: &[&str]| {
            let args = parse(arguments);
            [Set::Narrow, Set::Wide].map(|set| args.includes(set))
        };
        assert_eq!(sets(&[]), [true, true]);
        assert_eq!(sets(&["--set", "wide"]), [false, true]);
        assert_eq!(sets(&["--rows", "cpu"]), [true, false]);
        assert_eq!(sets(&["--tests", "tcp-8-up"]), [false, true]);
        assert_eq!(
            sets(&["--rows", "cpu", "--tests", "tcp-8-up"]),
            [true, true]
        );
    }

    #[test]
    fn rows_keep_the_order_of_the_table() {
        let rows = parse(&["--rows", "memory,tcp-up"]).rows();
        assert_eq!(rows, [Row::TcpUp, Row::Memory]);
        assert_eq!(parse(&[]).rows(), Row::ALL);
    }

    #[test]
    fn convoy_takes_part_in_any_choice() {
        let here = std::env::current_exe().unwrap();
        let mut args = parse(&["--contestants", "gotatun+q"]);
        args.convoy = here.clone();
        args.peers = here;
        let missing = args.contestants().unwrap_err().to_string();
        assert!(missing.contains("gotatun is not there"), "{missing}");
        args.contestants = vec!["nobody".to_owned()];
        let stranger = args.contestants().unwrap_err().to_string();
        assert!(stranger.contains("boringtun+q"), "{stranger}");
    }
}
