//! Bulk TCP with iperf3. Meanwhile the kernel's tracepoint counts the daemons' system calls.
//!
//! Counting costs little. strace(1) stops a process twice per call, and a slower process would fill its batches less.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use convoy_lab::{Namespace, Pid};
use serde::{Deserialize, Serialize};

/// Printed by a server once it listens.
const LISTENING: &str = "Server listening";
/// A client that runs this much longer than requested has lost its connection.
const STUCK: Duration = Duration::from_secs(15);

const EVENT: &str = "raw_syscalls:sys_enter";

/// The direction of the data, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    Both,
}

/// A load of parallel streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) way: Way,
    pub(crate) streams: u32,
    /// Congestion control of the sockets; `None` for the namespace's default.
    pub(crate) congestion: Option<&'static str>,
}

/// Payload received, summed over all streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) gbps: f64,
    /// The number of system calls, if counted.
    pub(crate) calls: Option<u64>,
}

/// A client and its server; both are killed when dropped.
pub(crate) struct Running {
    client: Option<Child>,
    server: Child,
}

/// Starts a client in `from` that loads the address `to` of `at` for `window`. Meanwhile perf counts the system calls
/// of all threads of `counted`, unless there are none.
///
/// # Errors
/// If iperf3 is not installed or does not listen.
pub(crate) fn start(
    from: &Namespace,
    at: &Namespace,
    to: IpAddr,
    load: Load,
    window: Duration,
    counted: &[Pid],
) -> anyhow::Result<Running> {
    let server = at
        .command("iperf3")
        .args(["--server", "--one-off", "--forceflush"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start iperf3 (fix: apt-get install iperf3)")?;
    let mut running = Running {
        client: None,
        server,
    };
    let printed = running.server.stdout.take().map(BufReader::new);
    let mut lines = printed
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok);
    let is_ready = lines.any(|line| line.starts_with(LISTENING));
    ensure!(is_ready, "iperf3 does not listen");
    // Otherwise its report would fill the pipe.
    thread::spawn(move || lines.count());
    let limit = (window + STUCK).as_secs().to_string();
    let mut client = match counted {
        [] => from.command("timeout"),
        pids => {
            let mut perf = counter(from, pids);
            perf.arg("timeout");
            perf
        }
    };
    client
        .args(["--signal=KILL", &limit, "iperf3", "--json", "--interval=0"])
        .args(["--client", &to.to_string()])
        .args(["--time", &window.as_secs_f64().ceil().max(1.0).to_string()])
        .args(["--parallel", &load.streams.to_string()])
        .args(load.way.argument())
        .args(load.congestion.map(|name| format!("--congestion={name}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    running.client = Some(
        client
            .spawn()
            .context("start timeout or perf (fix: apt-get install linux-perf)")?,
    );
    Ok(running)
}

/// perf, to be called with a command during which it counts the system calls of all threads of `pids`.
pub(crate) fn counter(namespace: &Namespace, pids: &[Pid]) -> Command {
    let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
    let mut perf = namespace.command("perf");
    perf.args(["stat", "-x,", "-e", EVENT, "-p", &pids.join(",")]);
    perf.stderr(Stdio::piped());
    perf
}

impl Running {
    /// Waits for the end of the load.
    ///
    /// # Errors
    /// If iperf3 fails; with its reason.
    pub(crate) fn finish(mut self) -> anyhow::Result<Received> {
        let client = self.client.take().context("iperf3 has been waited for")?;
        let output = client.wait_with_output().context("wait for iperf3")?;
        let mut received = received(&String::from_utf8_lossy(&output.stdout))?;
        received.calls = calls(&String::from_utf8_lossy(&output.stderr));
        Ok(received)
    }
}

/// Number of calls that a [`counter`] has printed: the first field of the event's line (perf-stat(1), "CSV FORMAT").
pub(crate) fn calls(printed: &str) -> Option<u64> {
    let mut lines = printed
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.contains(&EVENT))?;
    line.first()?.parse().ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.client.iter_mut().chain([&mut self.server]) {
            // Both fail only if the process has ended, as it should have.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Way {
    fn argument(self) -> Option<&'static str> {
        match self {
            Self::Up => None,
            Self::Down => Some("--reverse"),
            Self::Both => Some("--bidir"),
        }
    }
}

fn received(json: &str) -> anyhow::Result<Received> {
    #[derive(Deserialize)]
    struct Output {
        #[serde(default)]
        end: End,
        error: Option<String>,
    }
    #[derive(Default, Deserialize)]
    struct End {
        sum_received: Option<Sum>,
        /// The streams from the server, if both ends send.
        sum_received_bidir_reverse: Option<Sum>,
    }
    #[derive(Deserialize)]
    struct Sum {
        bytes: u64,
        bits_per_second: f64,
    }
    let output: Output =
        serde_json::from_str(json).map_err(|_| anyhow!("iperf3 was killed: no data arrived"))?;
    if let Some(error) = output.error {
        return Err(anyhow!("iperf3: {error}"));
    }
    let End {
        sum_received: one,
        sum_received_bidir_reverse: other,
    } = output.end;
    let sums: Vec<_> = one.into_iter().chain(other).collect();
    ensure!(!sums.is_empty(), "iperf3 reports no received data");
    Ok(Received {
        bytes: sums.iter().map(|sum| sum.bytes).sum(),
        gbps: sums.iter().map(|sum| sum.bits_per_second).sum::<f64>() / 1e9,
        calls: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
        "sum_sent": {"bytes": 9, "bits_per_second": 9.0},
        "sum_received": {"start": 0, "seconds": 1.0, "bytes": 800, "bits_per_second": 6.4e9},
        "sum_received_bidir_reverse": {"bytes": 450, "bits_per_second": 3.6e9}}}"#;

    #[test]
    fn the_count_is_that_of_the_event() {
        let printed = "# started\n931649,,raw_syscalls:sys_enter,162983813,100.00,,\n";
        assert_eq!(calls(printed), Some(931_649));
        let printed = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(calls(printed), None);
    }

    #[test]
    fn both_ways_are_added_up_and_a_failed_run_is_an_error_with_its_reason() {
        let both = received(BOTH).unwrap();
        assert_eq!((both.bytes, both.gbps), (1_250, 10.0));
        let one_way = BOTH.replace("_bidir_reverse", "_of_another_kind");
        assert_eq!(received(&one_way).unwrap().bytes, 800);
        let failed = r#"{"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}"#;
        let error = received(failed).unwrap_err().to_string();
        assert!(error.contains("unable to connect"), "{error}");
        assert!(received("").is_err() && received(r#"{"end": {}}"#).is_err());
    }
}
