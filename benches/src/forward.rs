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
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use convoy_lab::measure::{Between, Direction, Ends, TcpLoad, process::group_cpu_time};
use convoy_lab::traffic::Agent;
use convoy_lab::{Lab, Namespace, Pid};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use tempfile::NamedTempFile;

use crate::agent::{agent, connect};
use crate::programs::{Started, count_syscalls, counted_syscalls, ensure_built, find, version};
use crate::rounds::{interleaved, perform};

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

/// Name, program, the option that prints its version, arguments, file, and throughput in Gbit/s that is published of
/// somebody else's forwarder of this kind on another machine. `convoy` is the program that `--convoy` names. In
/// arguments and files, `{file}` is the path of the file, `{from}` the address to listen on, `{to}` that of the target,
/// and `{port}` the port of both.
type Contender = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Option<f64>,
);

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
    ("tokio's copy, 8 KiB", "convoy", "--version", "forward --relay=tokio --buffer=8K {file}", CONVOY, Some(17.8)),
    ("copy, 16 KiB", "convoy", "--version", "forward --relay=copy --buffer=16K {file}", CONVOY, Some(28.6)),
    ("copy, 64 KiB", "convoy", "--version", "forward --relay=copy --buffer=64K {file}", CONVOY, Some(54.1)),
    ("splice, 64 KiB", "convoy", "--version", "forward --relay=splice --buffer=64K {file}", CONVOY, None),
    ("rinetd", "rinetd", "--version", "-f -c {file}", RINETD, None),
    ("socat", "socat", "-V", SOCAT, "", None),
    ("haproxy", "haproxy", "-v", "-db -f {file}", HAPROXY, None),
];

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure_built(&args.convoy)?;
    let (rounds, secs) = match args.quick {
        true => (1, 1),
        false => (ROUNDS, SECONDS),
    };
    let window = Duration::from_secs(secs);
    let lab = Lab::new()?;
    let (left, right) = (lab.namespace("left")?, lab.namespace("right")?);
    connect(&lab, (&left, "veth0", LEFT), (&right, "veth0", RIGHT))?;
    let mut run = Run::new(Vec::new());
    let mut programs = Vec::new();
    for contender in &CONTENDERS {
        let (name, program, option, ..) = *contender;
        let program = match program {
            "convoy" => args.convoy.clone(),
            program => find(program),
        };
        if program.is_file() {
            let version = version(&program, option).map(|it| format!("{name}: {it}"));
            run.origin.versions.extend(version);
            programs.push((contender, program));
        } else {
            let why = format!("not installed (fix: apt-get install {name})");
            let note = format!("**Not measured: {name}**: {why}");
            run.origin.notes.push(note);
        }
    }
    let present: Vec<_> = programs.iter().collect();
    perform(
        interleaved(&present, rounds),
        |(round, (contender, program))| {
            let file = NamedTempFile::new()?;
            let forwarder = start(contender, program, &right, file.path());
            let measured = forwarder
                .and_then(|it| measure(contender, it.pid(), &left, window, round, &mut run));
            measured.context(contender.0)?;
            Ok(contender.0.to_owned())
        },
    )?;
    let names = CONTENDERS.map(|(name, ..)| name);
    run.rows
        .sort_by_key(|row| names.iter().position(|name| *name == row.contender));
    SECTION.keep(&run, args.json.as_deref(), !args.quick)
}

/// Sends through a running forwarder.
fn measure(
    &(name, .., published): &Contender,
    pid: Pid,
    left: &Namespace,
    window: Duration,
    round: u32,
    run: &mut Run,
) -> Result<()> {
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
    ends.begin_tcp(RIGHT.into(), load, None)?;
    let counter = count_syscalls(left, &[pid], window)?;
    let received = ends.finish_tcp(load)?;
    let cpu = (group_cpu_time(pid)? - before).as_secs_f64();
    let calls = counted_syscalls(counter)?;
    let gigabytes = received.bytes as f64 / 1e9;
    ensure!(gigabytes > 0.0, "no data arrived");
    let gbps = gigabytes * 8.0 / received.seconds;
    let kcalls = calls.map(|calls| calls as f64 / 1e3 / gigabytes);
    for (scene, figure, value) in [
        ("relayed", ("", "Gbit/s"), Some(gbps)),
        (
            "published",
            ("published", "Gbit/s"),
            published.filter(|_| round == 0),
        ),
        ("relayed-cpu", ("", "GB/CPU s"), Some(gigabytes / cpu)),
        ("cpus", ("", "CPUs"), Some(cpu / received.seconds)),
        ("calls", ("", "kcalls/GB"), kcalls),
    ] {
        let value = value.unwrap_or(f64::NAN);
        run.push(Row::new(scene, name, figure, round, value));
    }
    Ok(())
}

fn filled(text: &str, file: &Path) -> String {
    text.replace("{from}", &RIGHT.to_string())
        .replace("{to}", &LEFT.to_string())
        .replace("{port}", &PORT.to_string())
        .replace("{file}", &file.to_string_lossy())
}

/// Starts a forwarder whose settings are in `file`, and waits until it listens.
fn start(
    &(_, _, _, arguments, text, _): &Contender,
    program: &Path,
    inside: &Namespace,
    file: &Path,
) -> Result<Started> {
    fs::write(file, filled(text, file))?;
    let mut command = inside.command(program);
    let mut forwarder = Started::new(command.args(filled(arguments, file).split(' ')))?;
    // Documentation/networking/proc_net_tcp.rst: the local port, the remote address, and 0A for LISTEN.
    let listening = format!(":{PORT:04X} 00000000:0000 0A");
    let table = format!("/proc/{}/net/tcp", forwarder.pid());
    let listens = |_: &Started| fs::read_to_string(&table).is_ok_and(|it| it.contains(&listening));
    forwarder.wait_until(PATIENCE, listens)?;
    Ok(forwarder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_or_file_has_an_unfilled_place() {
        for (_, _, _, arguments, file, _) in CONTENDERS {
            let text = filled(&(arguments.to_owned() + file), Path::new("/f"));
            assert!(!text.contains('{'), "{text}");
        }
    }
}
