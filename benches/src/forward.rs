//! `make bench-forward`: how fast `convoy forward` relays, by the way in which bytes move, beside other forwarders.
//!
//! ```text
//!   ┌── left ────────────┐           ┌── right ────────┐
//!   │ client   10.98.0.1 ┼── veth0 ──┼─ 10.98.0.2      │
//!   │ server             │           │  the forwarder  │
//!   └────────────────────┘           └─────────────────┘
//! ```
//!
//! Eight TCP streams cross the veth to the forwarder, and again from it to the server.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::measure::{Between, Direction, Ends, TcpLoad, process::group_cpu_time};
use convoy_lab::traffic::Agent;
use convoy_lab::{Lab, Namespace, Pid, eventually};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use tempfile::NamedTempFile;

use crate::agent::agent;
use crate::programs::{Started, ensure_built, find};
use crate::rounds::{Progress, rotated};
use crate::tunnel::syscalls;

/// Measures convoy forward (tokio's own copy, buffers, splice(2)) and other forwarders (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One round of one second: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// The program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// File for all values [default: benches/results/forward.jsonl; none with --quick]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) const SECTION: Section = Section {
    title: "Forwarders",
    command: "bench-forward",
    file: "forward.jsonl",
    tables: &[Table {
        heading: "",
        shows: |_| true,
        corner: "8 streams",
        line: |row| row.contender.clone(),
        column: Row::label,
        has_spread: false,
    }],
    plots: &[],
    legend: "\
Medians over interleaved rounds. CPU time is that of the forwarder and its children; perf counts all their system calls.
The generator runs on the same processors: a forwarder that has less than a CPU to itself is not the limit, and its bytes
per CPU second say what it would carry if it were. The published figures are those of another program on another machine,
with 8, 16 and 64 KiB: compare their ratios. socat starts a process for each connection; haproxy splices, too.",
};

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// The server's port, and that of a forwarder.
const PORT: u16 = 5201;
const STREAMS: u32 = 8;
/// The fewest for an interval of 95 %.
const ROUNDS: u32 = 6;
const SECONDS: u64 = 4;
/// Time limit for a forwarder to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A forwarder with its settings. In arguments and files, `{file}` is the path of the file, `{from}` the address to
/// listen on, `{to}` that of the target, and `{port}` the port of both.
struct Contender {
    name: &'static str,
    /// `convoy` is the program that `--convoy` names.
    program: &'static str,
    /// Option that prints the version.
    version: &'static str,
    arguments: &'static str,
    file: &'static str,
    /// Throughput in Gbit/s of somebody else's forwarder of this kind on another machine.
    published: Option<f64>,
}

const CONVOY: &str = "Forward = {from}:{port}:{to}:{port}\nAllow = {to}\n";
const RINETD: &str = "{from} {port} {to} {port}\n";
const HAPROXY: &str = "\
defaults
    mode tcp
    option splice-request
    option splice-response
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen relay
    bind {from}:{port}
    server target {to}:{port}
";
const SOCAT: &str = "TCP-LISTEN:{port},bind={from},fork,reuseaddr TCP:{to}:{port}";

#[rustfmt::skip]
const CONTENDERS: [Contender; 7] = [
    of("tokio's copy, 8 KiB", "convoy", "--version", "forward --relay=tokio --buffer=8K {file}", CONVOY, Some(17.8)),
    of("copy, 16 KiB", "convoy", "--version", "forward --relay=copy --buffer=16K {file}", CONVOY, Some(28.6)),
    of("copy, 64 KiB", "convoy", "--version", "forward --relay=copy --buffer=64K {file}", CONVOY, Some(54.1)),
    of("splice, 64 KiB", "convoy", "--version", "forward --relay=splice --buffer=64K {file}", CONVOY, None),
    of("rinetd", "rinetd", "--version", "-f -c {file}", RINETD, None),
    of("socat", "socat", "-V", SOCAT, "", None),
    of("haproxy", "haproxy", "-v", "-db -f {file}", HAPROXY, None),
];

const fn of(
    name: &'static str,
    program: &'static str,
    version: &'static str,
    arguments: &'static str,
    file: &'static str,
    published: Option<f64>,
) -> Contender {
    Contender {
        name,
        program,
        version,
        arguments,
        file,
        published,
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure_built(&args.convoy)?;
    let (rounds, secs) = match args.quick {
        true => (1, 1),
        false => (ROUNDS, SECONDS),
    };
    let lab = Lab::new()?;
    let ends = [lab.namespace("left")?, lab.namespace("right")?];
    let (a, b) = (format!("{LEFT}/24"), format!("{RIGHT}/24"));
    lab.veth(&ends[0], "veth0", &[&a], &ends[1], "veth0", &[&b], 1500)?;
    let mut run = Run::new(Vec::new());
    let mut present = Vec::new();
    for contender in &CONTENDERS {
        let (name, program) = (contender.name, contender.path(&args.convoy));
        if !program.is_file() {
            let why = format!("not installed (fix: apt-get install {name})");
            run.origin
                .notes
                .push(format!("**Not measured: {name}**: {why}"));
            continue;
        }
        let version = contender.version(&program);
        let version = version.map(|version| format!("{name}: {version}"));
        run.origin.versions.extend(version);
        present.push((contender, program));
    }
    let mut progress = Progress::of(present.len() * rounds as usize);
    for round in 0..rounds {
        for (contender, program) in rotated(&present, round) {
            let file = NamedTempFile::new()?;
            let forwarder = start(contender, program, &ends[1], file.path())?;
            let window = Duration::from_secs(secs);
            let done = measure(
                contender,
                forwarder.pid(),
                &ends[0],
                window,
                round,
                &mut run,
            );
            done.context(contender.name)?;
            progress.step(contender.name);
        }
    }
    let names = CONTENDERS.map(|contender| contender.name);
    run.rows
        .sort_by_key(|row| names.iter().position(|name| *name == row.contender));
    SECTION.keep(&run, args.json.as_deref(), !args.quick)
}

/// Sends through a running forwarder.
fn measure(
    contender: &Contender,
    pid: Pid,
    left: &Namespace,
    window: Duration,
    round: u32,
    run: &mut Run,
) -> anyhow::Result<()> {
    let end = || Agent::spawn(agent(left));
    let between = Between {
        ports: [PORT, 0, 0],
        proxy: None,
    };
    let mut ends = Ends::with(end()?, end()?, end()?, between)?;
    let load = TcpLoad {
        direction: Direction::Up,
        streams: STREAMS,
        warmup: Duration::ZERO,
        window,
    };
    let before = group_cpu_time(pid)?;
    ends.begin_tcp(IpAddr::V4(RIGHT), load, None)?;
    let counter = syscalls::count(left, &[pid], window)?;
    let received = ends.finish_tcp(load)?;
    let cpu = (group_cpu_time(pid)? - before).as_secs_f64();
    let calls = syscalls::counted(counter)?;
    let gigabytes = received.bytes as f64 / 1e9;
    ensure!(gigabytes > 0.0, "no data arrived");
    let gbps = gigabytes * 8.0 / received.seconds;
    let mut add = |scene, figure, value| {
        run.push(Row::new(scene, contender.name, figure, round, value));
    };
    add("relayed", ("", "Gbit/s"), gbps);
    if let Some(published) = contender.published.filter(|_| round == 0) {
        add("published", ("published", "Gbit/s"), published);
    }
    add("relayed-cpu", ("", "GB/CPU s"), gigabytes / cpu);
    add("cpus", ("", "CPUs"), cpu / received.seconds);
    if let Some(calls) = calls {
        add("calls", ("", "kcalls/GB"), calls as f64 / 1e3 / gigabytes);
    }
    Ok(())
}

impl Contender {
    fn path(&self, convoy: &Path) -> PathBuf {
        match self.program {
            "convoy" => convoy.to_owned(),
            program => find(program),
        }
    }

    /// The line that it prints about itself.
    fn version(&self, program: &Path) -> Option<String> {
        let output = Command::new(program).arg(self.version).output().ok()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut lines = printed.lines();
        let line = lines.find(|line| line.contains(|letter: char| letter.is_ascii_digit()))?;
        Some(line.to_owned())
    }
}

fn filled(text: &str, file: &Path) -> String {
    text.replace("{from}", &RIGHT.to_string())
        .replace("{to}", &LEFT.to_string())
        .replace("{port}", &PORT.to_string())
        .replace("{file}", &file.to_string_lossy())
}

/// Starts a forwarder whose settings are in `file`, and waits until it listens.
fn start(
    contender: &Contender,
    program: &Path,
    inside: &Namespace,
    file: &Path,
) -> anyhow::Result<Started> {
    fs::write(file, filled(contender.file, file))?;
    let mut command = inside.command(program);
    let mut forwarder = Started::new(command.args(filled(contender.arguments, file).split(' ')))?;
    // Documentation/networking/proc_net_tcp.rst: the local port, the remote address, and 0A for LISTEN.
    let listening = format!(":{PORT:04X} 00000000:0000 0A");
    let table = format!("/proc/{}/net/tcp", forwarder.pid());
    let listens = eventually(PATIENCE, || match forwarder.check() {
        Ok(()) => fs::read_to_string(&table)
            .ok()?
            .contains(&listening)
            .then_some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    listens.context("it does not listen")??;
    Ok(forwarder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_or_file_has_an_unfilled_place() {
        for one in &CONTENDERS {
            let text = filled(one.arguments, Path::new("/f")) + &filled(one.file, Path::new("/f"));
            assert!(!text.contains('{'), "{text}");
        }
    }
}
