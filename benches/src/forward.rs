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

mod contender;
mod report;

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use convoy_lab::{Lab, Namespace, Pid, measure::process::group_cpu_time};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::{
    origin::Origin,
    programs::{ensure_built, first_line},
    results,
    rounds::{Progress, rotated},
    tunnel::iperf::{self, Load, Way},
};
use contender::Contender;

/// The result file.
pub(crate) const FILE: &str = "forward.json";

/// Measures convoy forward (tokio's own copy, buffers, splice(2)) and other forwarders (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One round of one second: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// The program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// File for all values [default: benches/results/forward.json; none with --quick]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
/// The port of iperf3.
const PORT: u16 = 5201;
const STREAMS: u32 = 8;
/// The fewest for an interval of 95 %.
const ROUNDS: u32 = 6;
const SECONDS: u64 = 4;
/// How long a forwarder may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    origin: Origin,
    secs: u64,
    /// Contenders that could not be measured, and the reasons.
    absent: BTreeMap<String, String>,
    contenders: Vec<Measured>,
}

/// The figures of a contender, by round.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    name: String,
    version: Option<String>,
    /// Throughput of somebody else's forwarder of this kind on another machine.
    published_gbps: Option<f64>,
    gbps: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
    /// Absent in rounds in which perf counted nothing.
    calls_per_gb: Vec<Option<f64>>,
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
    let iperf3 = first_line(std::process::Command::new("iperf3").arg("--version")).ok();
    let (present, absent) = contender::all(&args.convoy);
    let mut record = Record {
        origin: Origin::of_this_run(iperf3.into_iter().collect()),
        secs,
        absent,
        contenders: present.iter().map(Measured::nothing).collect(),
    };
    let mut progress = Progress::of(present.len() * rounds as usize);
    for round in 0..rounds {
        for number in rotated(0..present.len(), round) {
            let contender = &present[number];
            let measured = &mut record.contenders[number];
            let done = measured.measure(contender, &ends, Duration::from_secs(secs));
            done.context(contender.name)?;
            progress.step(contender.name);
        }
    }
    results::keep(&record, args.json.as_deref(), FILE, !args.quick)
}

impl Measured {
    fn nothing(of: &Contender) -> Self {
        Self {
            name: of.name.to_owned(),
            version: of.version(),
            published_gbps: of.published_gbps,
            gbps: Vec::new(),
            cpu_s_per_gb: Vec::new(),
            calls_per_gb: Vec::new(),
        }
    }

    fn measure(
        &mut self,
        contender: &Contender,
        [left, right]: &[Namespace; 2],
        window: Duration,
    ) -> anyhow::Result<()> {
        let forwarder = Forwarder::start(contender, right)?;
        let load = Load {
            way: Way::Up,
            streams: STREAMS,
            congestion: None,
        };
        let pid = forwarder.pid();
        let before = group_cpu_time(pid)?;
        let running = iperf::start(left, left, IpAddr::V4(RIGHT), load, window, &[pid])?;
        let received = running.finish()?;
        let cpu = group_cpu_time(pid)? - before;
        let gigabytes = received.bytes as f64 / 1e9;
        self.gbps.push(received.gbps);
        self.cpu_s_per_gb.push(cpu.as_secs_f64() / gigabytes);
        let calls = received.calls.map(|calls| calls as f64 / gigabytes);
        self.calls_per_gb.push(calls);
        Ok(())
    }
}

/// The program under test and its children, one process group; killed when dropped.
struct Forwarder {
    child: Child,
    _file: NamedTempFile,
}

impl Forwarder {
    fn start(contender: &Contender, inside: &Namespace) -> anyhow::Result<Self> {
        let mut file = NamedTempFile::new()?;
        file.write_all(contender.file().as_bytes())?;
        let child = inside
            .command(&contender.program)
            .args(contender.words(file.path()))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start the forwarder")?;
        let mut forwarder = Self { child, _file: file };
        forwarder.wait_until_listening()?;
        Ok(forwarder)
    }

    fn wait_until_listening(&mut self) -> anyhow::Result<()> {
        // Documentation/networking/proc_net_tcp.rst: the local port, the remote address, and 0A for LISTEN.
        let listening = format!(":{PORT:04X} 00000000:0000 0A");
        let table = format!("/proc/{}/net/tcp", self.child.id());
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&table)?.contains(&listening) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}");
            }
            ensure!(Instant::now() < deadline, "it does not listen");
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn pid(&self) -> Pid {
        // Process numbers are below 2²² (PID_MAX_LIMIT).
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Errors mean that they have already ended.
        let _ = nix::sys::signal::killpg(self.pid(), nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
