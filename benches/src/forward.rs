//! `make bench-forward`: how fast `convoy forward` relays, by the way in which bytes move.
//!
//! ```text
//!   ┌── left ────────────┐           ┌── right ────────┐
//!   │ client   10.98.0.1 ┼── veth0 ──┼─ 10.98.0.2      │
//!   │ server             │           │  convoy forward │
//!   └────────────────────┘           └─────────────────┘
//! ```
//!
//! Eight TCP streams cross the veth to the forwarder, and again from it to the server.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use convoy_lab::{
    Lab, Namespace, Pid,
    measure::{Sample, process::cpu_time},
};

use crate::{
    programs::ensure_built,
    rounds::{Progress, rotated},
    table::{markdown, number, spread},
    tunnel::iperf::{self, Load, Way},
};

/// Measures the relay of `convoy forward`: tokio's own copy, buffers, and splice(2) (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One round of one second: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// The program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
}

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// The port of iperf3.
const PORT: u16 = 5201;
const STREAMS: u32 = 8;
const ROUNDS: u32 = 5;

/// A way in which bytes move, and what each round has measured.
struct Contender {
    name: &'static str,
    arguments: [&'static str; 4],
    rounds: Vec<Round>,
}

struct Round {
    gbps: f64,
    cpu_per_gb: f64,
    calls_per_gb: Option<f64>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure_built(&args.convoy)?;
    let (rounds, window) = match args.quick {
        true => (1, Duration::from_secs(1)),
        false => (ROUNDS, Duration::from_secs(5)),
    };
    let lab = Lab::new()?;
    let ends = [lab.namespace("left")?, lab.namespace("right")?];
    let (a, b) = (format!("{LEFT}/24"), format!("{RIGHT}/24"));
    lab.veth(&ends[0], "veth0", &[&a], &ends[1], "veth0", &[&b], 1500)?;
    let mut contenders = contenders();
    let mut progress = Progress::of(contenders.len() * rounds as usize);
    for round in 0..rounds {
        for contender in rotated(&mut contenders, round) {
            let measured = measure(&args.convoy, contender.arguments, &ends, window);
            contender.rounds.push(measured.context(contender.name)?);
            progress.step(contender.name);
        }
    }
    print!("{}", table(&contenders));
    Ok(())
}

fn contenders() -> [Contender; 4] {
    let contender = |name, relay, buffer| Contender {
        name,
        arguments: ["--relay", relay, "--buffer", buffer],
        rounds: Vec::new(),
    };
    [
        contender("tokio's copy, 8 KiB", "tokio", "8K"),
        contender("copy, 16 KiB", "copy", "16K"),
        contender("copy, 64 KiB", "copy", "64K"),
        contender("splice, 64 KiB", "splice", "64K"),
    ]
}

fn measure(
    convoy: &Path,
    arguments: [&str; 4],
    [left, right]: &[Namespace; 2],
    window: Duration,
) -> anyhow::Result<Round> {
    let forwarder = Forwarder::start(convoy, arguments, right)?;
    let load = Load {
        way: Way::Up,
        streams: STREAMS,
        congestion: None,
    };
    let pid = forwarder.pid();
    let before = cpu_time(pid)?;
    let running = iperf::start(
        left,
        left,
        IpAddr::V4(RIGHT),
        load,
        window,
        Some([pid, pid]),
    )?;
    let received = running.finish()?;
    let gigabytes = received.bytes as f64 / 1e9;
    Ok(Round {
        gbps: received.gbps,
        cpu_per_gb: (cpu_time(pid)? - before).as_secs_f64() / gigabytes,
        calls_per_gb: received.calls.map(|calls| calls as f64 / gigabytes),
    })
}

/// The program under test; killed when dropped.
struct Forwarder(Child);

impl Forwarder {
    fn start(convoy: &Path, arguments: [&str; 4], inside: &Namespace) -> anyhow::Result<Self> {
        let mut file = tempfile::NamedTempFile::new()?;
        writeln!(
            file,
            "Forward = {RIGHT}:{PORT}:{LEFT}:{PORT}\nAllow = {LEFT}"
        )?;
        let mut command = inside.command(convoy);
        command.arg("forward").args(arguments).arg(file.path());
        command.stdout(Stdio::piped());
        let mut child = Self(command.spawn().context("start the forwarder")?);
        let output = child.0.stdout.take().map(BufReader::new);
        let mut lines = output
            .into_iter()
            .flat_map(|output| output.lines().map_while(Result::ok));
        ensure!(lines.any(|line| line.contains("ready")), "it has ended");
        // Otherwise its log would fill the pipe.
        thread::spawn(move || lines.count());
        Ok(child)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Medians and spreads; the ratios are to the first contender.
fn table(contenders: &[Contender]) -> String {
    let sample = |it: &Contender, figure: fn(&Round) -> Option<f64>| {
        Sample::of(it.rounds.iter().filter_map(figure).collect())
    };
    let rate = |it: &Contender| sample(it, |round| Some(round.gbps));
    let first = contenders.first().and_then(rate);
    let rows = contenders.iter().map(|it| {
        let ratio = rate(it)
            .zip(first.as_ref())
            .map(|(rate, first)| rate.median / first.median);
        let cpu = sample(it, |round| Some(round.cpu_per_gb)).map(|it| it.median);
        let calls = sample(it, |round| round.calls_per_gb).map(|it| it.median);
        vec![
            it.name.to_owned(),
            rate(it).map_or_else(|| "–".to_owned(), |rate| spread(&rate, 2)),
            number(ratio, 2),
            number(cpu, 2),
            number(calls, 0),
        ]
    });
    markdown("8 streams | Gbit/s | ratio | CPU s/GB | calls per GB", rows)
}
