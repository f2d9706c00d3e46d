//! Metrics, read as Prometheus, keepalived and people read them.

mod http;
mod prometheus;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::Stdio,
};

use convoy_lab::{
    Lab, Namespace, eventually,
    wireguard::{Daemon, Tunnel, TunnelOptions},
};
use nix::sys::signal::Signal;

use crate::scene::{DEADLINE, convoy, convoy_program, lab, output_of};
pub(crate) use http::Answer;
use prometheus::Prometheus;

const ADDRESS: &str = "127.0.0.1:9586";
const TOKEN: &str = "3f2504e04f8941d39a0c0305e82c3301";

#[test]
#[ignore = "make interop"]
fn prometheus_scrapes_a_daemon_with_the_token() {
    let Some((_turn, lab)) = lab(&["ip", "ping", "prometheus", "promtool"]) else {
        return;
    };
    let token = TokenFile::new();
    let ours = convoy().variable("CONVOY_METRICS", ADDRESS);
    let ours = ours.variable("CONVOY_METRICS_TOKEN_FILE", token.path());
    let tunnel = Tunnel::new(&lab, &ours, &convoy(), &TunnelOptions::default()).unwrap();
    let left = &tunnel.left.namespace;
    left.link().set_up("lo").unwrap();
    output_of(left, "ping", &["-qc3", "-i0.1", "10.8.0.2"]);

    let prometheus = Prometheus::start(left, ADDRESS, token.path());
    prometheus.becomes("up", 1.0);
    for series in [
        "convoy_link_up{interface=\"wg0\"}",
        "convoy_packets_total{direction=\"outbound\"} >= bool 3",
        "convoy_peer_session",
        "convoy_peer_received_packets_total >= bool 3",
        "convoy_send_segments_count >= bool 3",
        "convoy_send_segments_bucket{le=\"+Inf\"} >= bool 3",
        "convoy_drops_total{reason=\"inbound_replay\"} == bool 0",
        "time() - convoy_peer_latest_handshake_timestamp_seconds < bool 100",
    ] {
        prometheus.becomes(series, 1.0);
    }
    let answer = http::get_tcp(left, ADDRESS, "/metrics", Some(TOKEN));
    prometheus::lint(&answer.body);
    drop(prometheus);
    log_is_silent_of(TOKEN, &tunnel.left.daemon);
}

#[test]
fn without_the_token_a_port_says_nothing() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = namespace(&lab);
    let token = TokenFile::new();
    let ours = convoy().argument("--metrics").argument(ADDRESS);
    let ours = ours.argument("--metrics-token-file").argument(token.path());
    let daemon = Daemon::start(&namespace, &ours, "wg0").unwrap();
    for wrong in [None, Some("3f2504e04f8941d39a0c0305e82c3302")] {
        let refused = http::get_tcp(&namespace, ADDRESS, "/metrics", wrong);
        assert_eq!(refused.status, 401);
        assert!(!refused.body.contains("convoy_"), "{}", refused.body);
    }
    let answer = http::get_tcp(&namespace, ADDRESS, "/healthz", Some(TOKEN));
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (503, "the link wg0 is down\n")
    );
    namespace.link().set_up("wg0").unwrap();
    let is_well = || {
        let answer = http::get_tcp(&namespace, ADDRESS, "/healthz", Some(TOKEN));
        (answer.status == 200).then_some(())
    };
    assert!(eventually(DEADLINE, is_well).is_some());
    log_is_silent_of(TOKEN, &daemon);
}

#[test]
fn a_unix_socket_is_for_root_alone_and_goes_with_the_daemon() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = namespace(&lab);
    let path = namespace.run_directory().join("wg0.metrics");
    let ours = convoy().argument("--metrics=unix:/run/wg0.metrics");
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        // The second time, what the killed one has left is replaced.
        let mut daemon = Daemon::start(&namespace, &ours, "wg0").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        let answer = get_unix(&path, "/metrics");
        assert_eq!(answer.status, 200);
        assert!(
            answer
                .body
                .contains("convoy_link_up{interface=\"wg0\"} 0\n"),
            "{}",
            answer.body
        );
        let mut other = namespace.command(convoy_program());
        let other = other.args(["-f", "--metrics=unix:/run/wg0.metrics", "wg1"]);
        let other = other.stdout(Stdio::null()).output().unwrap();
        let said = String::from_utf8(other.stderr).unwrap();
        assert!(
            !other.status.success() && said.contains("already in use"),
            "{said}"
        );
        assert!(!namespace.link().exists("wg1"));
        daemon.signal(signal).unwrap();
        daemon.wait().unwrap();
        assert_eq!(path.exists(), signal == Signal::SIGKILL);
    }
}

#[test]
fn an_address_that_cannot_be_used_leaves_nothing_behind() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = namespace(&lab);
    let token = TokenFile::new();
    let token = format!("--metrics-token-file={}", token.path());
    for (switches, words) in [
        (
            &["--metrics=0.0.0.0:9586", &token][..],
            "not a loopback address",
        ),
        (&["--metrics=127.0.0.1:9586"], "--metrics-token-file"),
        (
            &["--metrics=127.0.0.1:9586", "--metrics-token-file=/nowhere"],
            "/nowhere",
        ),
        (&["--metrics=unix:/proc/wg0.metrics"], "/proc/wg0.metrics"),
    ] {
        for foreground in ["0", "1"] {
            let mut command = namespace.command(convoy_program());
            let command = command.args(switches).arg("wg0");
            let output = command
                .env("WG_PROCESS_FOREGROUND", foreground)
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                !output.status.success() && said.contains(words),
                "{switches:?}: {said}"
            );
            assert!(!namespace.link().exists("wg0"), "{switches:?}");
        }
    }
}

/// Returns the answer of a Unix socket.
pub(crate) fn get_unix(path: &Path, target: &str) -> Answer {
    http::get(UnixStream::connect(path).unwrap(), target, None)
}

fn namespace(lab: &Lab) -> Namespace {
    let namespace = lab.namespace("left").unwrap();
    namespace.link().set_up("lo").unwrap();
    namespace
}

fn log_is_silent_of(token: &str, daemon: &Daemon) {
    let log = daemon.log();
    assert!(!log.contains(token), "{log}");
}

/// A file with [`TOKEN`] that only root can read.
struct TokenFile(tempfile::NamedTempFile);

impl TokenFile {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}
