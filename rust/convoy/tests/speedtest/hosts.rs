//! `--serve` and `--to` over an existing tunnel; two namespaces play the hosts.

use std::process::Stdio;
use std::time::Duration;

use convoy_lab::wireguard::{Implementation, Tunnel, TunnelOptions};
use convoy_lab::{Lab, eventually};

use crate::{PROGRAM, parsed, turn};

#[test]
fn a_tunnel_between_two_hosts_is_measured_in_both_directions() {
    let Some(_turn) = turn("a_tunnel_between_two_hosts_is_measured_in_both_directions") else {
        return;
    };
    let lab = Lab::new().unwrap();
    let daemon = Implementation::new(PROGRAM);
    let tunnel = Tunnel::new(&lab, &daemon, &daemon, &TunnelOptions::default()).unwrap();
    let mut process = tunnel
        .right
        .namespace
        .command(PROGRAM)
        .args(["speedtest", "--serve"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();

    let server = tunnel.right.inner_v4().to_string();
    let mut client = tunnel.left.namespace.command(PROGRAM);
    client.args(["speedtest", "--to", &server, "--secs", "1", "--json"]);
    client.args(["--tests", "tcp-up,tcp-down,udp-1200"]);
    // Until the server listens, the client reports that there is none.
    let output = eventually(Duration::from_secs(20), || {
        let output = client.output().unwrap();
        let refused = String::from_utf8_lossy(&output.stderr).contains("refused");
        (!refused).then_some(output)
    });
    process.kill().unwrap();
    process.wait().unwrap();
    let report = parsed(&output.unwrap());
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert!(run["gbps"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["ping_loaded_ms"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["cpu_s_per_gb"].is_null(), "{run}");
    }
    assert!(report["ceiling"]["gbps"].is_null());
}

#[test]
fn a_host_that_serves_nothing_is_an_error_that_says_what_to_start() {
    let output = crate::speedtest("--to 127.0.0.1:9");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(errors.contains("convoy speedtest --serve"), "{errors}");
}
