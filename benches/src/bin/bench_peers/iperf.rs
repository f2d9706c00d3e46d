//! TCP by iperf3, as its JSON tells it.

use std::fs;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use convoy_lab::{Namespace, eventually};
use serde::Deserialize;

/// Its port, 5201, and the state LISTEN, as /proc/net/tcp shows them
/// (Documentation/networking/proc_net_tcp.rst).
const PORT: &str = ":1451";
const LISTEN: &str = "0A";
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that takes this much longer than it was told has lost its connection.
const STUCK: Duration = Duration::from_secs(15);

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Up,
    Down,
    FourStreams,
    BothWays,
    EightUp,
    EightDown,
}

/// Payload that arrived, of all streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) gbps: f64,
}

/// Runs a client in `from` against a server in `at`, which has the address `to`.
pub(crate) fn run(
    from: &Namespace,
    at: &Namespace,
    to: IpAddr,
    load: Load,
    window: Duration,
) -> anyhow::Result<Received> {
    let server = Server::start(at)?;
    let output = limited(from, window + STUCK)
        .args(["--client", &to.to_string(), "--json", "--interval", "0"])
        .args(["--time", &window.as_secs().to_string()])
        .args(load.arguments())
        .output()
        .context("start iperf3")?;
    drop(server);
    received(&String::from_utf8_lossy(&output.stdout))
}

impl Load {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Up => &[],
            Self::Down => &["--reverse"],
            Self::FourStreams => &["--parallel", "4"],
            Self::BothWays => &["--bidir"],
            Self::EightUp => &["--parallel", "8"],
            Self::EightDown => &["--parallel", "8", "--reverse"],
        }
    }
}

/// A server for one client; killed when dropped.
struct Server(Child);

impl Server {
    fn start(at: &Namespace) -> anyhow::Result<Self> {
        let child = at
            .command("iperf3")
            .args(["--server", "--one-off"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start iperf3 (fix: apt-get install iperf3)")?;
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", child.id()));
        let server = Self(child);
        let listens = |path| fs::read_to_string(path).is_ok_and(|table| has_listener(&table));
        eventually(PATIENCE, || tables.iter().any(listens).then_some(()))
            .context("iperf3 does not listen")?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only where it has ended, as it should have.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether someone waits for clients; connections of the server before may still be there.
fn has_listener(table: &str) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_port = fields.next().is_some_and(|local| local.ends_with(PORT));
        is_port && fields.nth(1) == Some(LISTEN)
    })
}

/// iperf3 inside `namespace`, killed after `limit`.
fn limited(namespace: &Namespace, limit: Duration) -> Command {
    let mut command = namespace.command("timeout");
    command
        .args(["--signal=KILL", &limit.as_secs().to_string(), "iperf3"])
        .stdin(Stdio::null());
    command
}

fn received(json: &str) -> anyhow::Result<Received> {
    let output: Output =
        serde_json::from_str(json).map_err(|_| anyhow!("iperf3 was killed: nothing arrives"))?;
    if let Some(error) = output.error {
        return Err(anyhow!("iperf3: {error}"));
    }
    let sums = [
        output.end.sum_received,
        output.end.sum_received_bidir_reverse,
    ];
    let sums: Vec<_> = sums.into_iter().flatten().collect();
    ensure!(!sums.is_empty(), "iperf3 does not tell what was received");
    Ok(Received {
        bytes: sums.iter().map(|sum| sum.bytes).sum(),
        gbps: sums.iter().map(|sum| sum.bits_per_second).sum::<f64>() / 1e9,
    })
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
struct End {
    sum_received: Option<Sum>,
    /// Of the streams from the server, where both ends send.
    sum_received_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bytes: u64,
    bits_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
        "sum_sent": {"bytes": 9, "bits_per_second": 9.0},
        "sum_received": {"start": 0, "seconds": 1.0, "bytes": 800, "bits_per_second": 6.4e9},
        "sum_sent_bidir_reverse": {"bytes": 9, "bits_per_second": 9.0},
        "sum_received_bidir_reverse": {"bytes": 450, "bits_per_second": 3.6e9}}}"#;

    #[test]
    fn connections_of_the_last_server_are_no_listener() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";
        let old = "   0: 0200080A:1451 0100080A:A1B2 06 00000000:00000000 03:00000F9E\n";
        let new = "   1: 00000000:1451 00000000:0000 0A 00000000:00000000 00:00000000\n";
        assert!(!has_listener(&format!("{head}{old}")));
        assert!(has_listener(&format!("{head}{old}{new}")));
    }

    #[test]
    fn what_was_received_both_ways_is_added_up() {
        let expected = Received {
            bytes: 1_250,
            gbps: 10.0,
        };
        assert_eq!(received(BOTH).unwrap(), expected);
    }

    #[test]
    fn one_way_counts_what_was_received_and_not_what_was_sent() {
        let one_way = BOTH.replace("_bidir_reverse", "_of_another_kind");
        assert_eq!(received(&one_way).unwrap().bytes, 800);
    }

    #[test]
    fn a_failed_run_is_an_error_with_its_reason() {
        let failed = r#"{"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}"#;
        let error = received(failed).unwrap_err().to_string();
        assert!(error.contains("unable to connect"), "{error}");
        assert!(received("").is_err());
        assert!(received(r#"{"end": {}}"#).is_err());
    }
}
