//! What can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;

use crate::contestants::{self, Contestant};
use crate::rows::Row;

/// Measures Convoy and other WireGuard programs in turns, and prints a table.
#[derive(Debug, Clone, Parser)]
#[command(after_help = BUDGET)]
pub(crate) struct Args {
    /// Repetitions; an interval of 95 % takes six
    #[arg(long, value_name = "N", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    reps: u32,

    /// Seconds of each TCP run
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    secs: u32,

    /// One repetition with TCP runs of a second: shows that all works, not who is faster
    #[arg(long, conflicts_with_all = ["reps", "secs"])]
    quick: bool,

    /// Only these rows
    #[arg(long, value_name = "A,B", value_enum, value_delimiter = ',')]
    rows: Vec<Row>,

    /// Only these programs, and Convoy; `NAME+q` is NAME with Convoy's txqueuelen on its interface
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    contestants: Vec<String>,

    /// Where every single value is written to
    #[arg(
        long,
        value_name = "FILE",
        default_value = "benches/results/peers.json"
    )]
    pub(crate) json: PathBuf,

    /// Convoy
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,

    /// The directory of the other programs, as `make peers` fills it
    #[arg(long, value_name = "DIR", default_value = "target/peers/bin")]
    peers: PathBuf,
}

const BUDGET: &str = "\
Time, by default, for one contestant in one repetition:
  start, handshake, end                  1 s
  CPU without traffic, ping              2 s
  TCP: up, down, 4 streams, both ways,
       up with the veth cutting         12 s   5 x (--secs + iperf3's 0.4)
  200 kpps of 1,200 B                    1 s
  two searches of a UDP rate            10 s   about 7 probes of 0.5 s each
9 contestants in 9 repetitions: about 35 minutes.";

impl Args {
    pub(crate) fn repetitions(&self) -> u32 {
        if self.quick { 1 } else { self.reps }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { self.secs.into() })
    }

    /// The rows, in the order of the table.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let asked = |row: &Row| self.rows.is_empty() || self.rows.contains(row);
        Row::ALL.into_iter().filter(asked).collect()
    }

    /// Who takes part; Convoy is the first.
    ///
    /// # Errors
    /// When a name is nobody's, or a program is not there.
    pub(crate) fn contestants(&self) -> anyhow::Result<Vec<Contestant>> {
        let all = contestants::all(&self.convoy, &self.peers);
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
        let chosen: Vec<_> = all.into_iter().filter(asked).collect();
        for one in &chosen {
            if !one.program.is_file() {
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
        assert_eq!(args.repetitions(), 1);
        assert_eq!(args.window(), Duration::from_secs(1));
        assert_eq!(parse(&[]).repetitions(), 9);
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
