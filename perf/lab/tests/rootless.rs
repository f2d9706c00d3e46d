//! A lab without root: through a user namespace.
//!
//! Root plays a user: in a private mount namespace, with a TUN node of its own (whose mode is
//! then no matter of the machine's), as `nobody`. The same test binary is started again there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    process::{Command, Output},
};

use convoy_lab::{
    Lab, LabError, require_programs, require_root_lab,
    wireguard::{Implementation, Tunnel, TunnelOptions},
};

/// Set for the child that is started again as `nobody`.
const NOBODY: &str = "CONVOY_LAB_NOBODY";

#[test]
fn a_user_has_a_lab_through_a_user_namespace() {
    let test = "a_user_has_a_lab_through_a_user_namespace";
    let programs = ["setpriv", "mknod", "ping", "wireguard-go"];
    if !require_root_lab(test) || !require_programs(test, &programs) {
        return;
    }
    let output = as_nobody("builds_a_tunnel_as_nobody", "666");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("1 passed"), "{}", text(&output));
}

#[test]
fn a_user_who_may_not_open_the_tun_node_is_told_the_fix() {
    let test = "a_user_who_may_not_open_the_tun_node_is_told_the_fix";
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "mknod"]) {
        return;
    }
    let output = as_nobody("is_told_the_fix", "600");
    assert!(
        text(&output).contains("fix: `sudo chmod 0666 /dev/net/tun`"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_user_without_user_namespaces_is_told_the_fix() {
    let test = "a_user_without_user_namespaces_is_told_the_fix";
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "unshare"]) {
        return;
    }
    // The limit is lowered in a user namespace that is made for it, and root's capabilities are
    // taken away, which leaves a user.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces
                  exec setpriv --bounding-set -all --inh-caps -all \"$0\" \"$@\"";
    let lab = Lab::new().unwrap();
    let output = lab
        .namespace("outside")
        .unwrap()
        .command("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "is_told_the_fix", "--ignored", "--nocapture"])
        .env(NOBODY, "1")
        .output()
        .unwrap();
    let told = "fix: `sudo sysctl -w user.max_user_namespaces=15000`";
    assert!(text(&output).contains(told), "{}", text(&output));
}

#[test]
#[ignore = "started by a_user_has_a_lab_through_a_user_namespace"]
fn builds_a_tunnel_as_nobody() {
    if env::var_os(NOBODY).is_none() {
        return;
    }
    let lab = Lab::new().unwrap();
    assert!(!lab.is_root());
    let daemon = Implementation::new("wireguard-go");
    let tunnel = Tunnel::new(&lab, &daemon, &daemon, &TunnelOptions::default()).unwrap();
    let mut ping = tunnel.left.namespace.command("ping");
    let ping = ping
        .args(["-c1", "-W10"])
        .arg(tunnel.right.inner_v4().to_string());
    let answer = ping.output().unwrap();
    assert!(answer.status.success(), "{}", text(&answer));
    assert!(
        tunnel
            .left
            .namespace
            .link()
            .statistics("wg0")
            .unwrap()
            .rx_packets
            > 0
    );
    assert!(matches!(
        tunnel.left.namespace.run(|| ()),
        Err(LabError::RunNeedsRoot)
    ));
    let inside = tunnel.left.daemon.pid();
    drop(lab);
    assert!(!fs::read_to_string(format!("/proc/{inside}/stat")).is_ok_and(|s| s.contains(") S ")));
}

#[test]
#[ignore = "started by the tests of messages"]
fn is_told_the_fix() {
    if env::var_os(NOBODY).is_some() {
        println!("{}", Lab::new().err().unwrap());
    }
}

/// Runs a test of this binary as `nobody`, who finds a TUN node of `mode`.
fn as_nobody(test: &str, mode: &str) -> Output {
    let lab = Lab::new().unwrap();
    // The binary is copied, since its directory may be closed to nobody.
    let script = format!(
        "set -e
         mount -t tmpfs -o mode=0755 tmpfs /mnt
         mknod -m {mode} /mnt/tun c 10 200
         mount --bind /mnt/tun /dev/net/tun
         install -m 755 \"$0\" /mnt/test
         cd /
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \
             /mnt/test --exact {test} --ignored --nocapture"
    );
    let mut shell: Command = lab.namespace("outside").unwrap().command("sh");
    let shell = shell
        .args(["-c", &script])
        .arg(env::current_exe().unwrap())
        .env(NOBODY, "1");
    shell.output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
