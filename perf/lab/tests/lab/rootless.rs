//! A lab without root: through a user namespace.
//!
//! Root plays a user: in a private mount namespace, with a TUN node of its own (whose mode is
//! then independent of the machine's), as `nobody`. The same test binary is started again there.

use std::env;
use std::fs;
use std::process::{Command, Output};

use convoy_lab::wireguard::{Implementation, Tunnel, TunnelOptions};
use convoy_lab::{Lab, LabError, require_programs, require_root_lab};

use crate::{CHILD, is_child, only};

#[test]
fn a_user_has_a_lab_through_a_user_namespace() {
    let test = "a_user_has_a_lab_through_a_user_namespace";
    let programs = ["setpriv", "mknod", "ping", "wireguard-go"];
    if !require_root_lab(test) || !require_programs(test, &programs) {
        return;
    }
    let (succeeded, output) = as_nobody("rootless::builds_a_tunnel_as_nobody", "666");
    assert!(succeeded && output.contains("1 passed"), "{output}");
}

#[test]
fn a_user_who_may_not_open_the_tun_node_learns_the_fix() {
    let test = "a_user_who_may_not_open_the_tun_node_learns_the_fix";
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "mknod"]) {
        return;
    }
    let (_, output) = as_nobody("rootless::prints_the_refusal", "600");
    let fix = "fix: `sudo chmod 0666 /dev/net/tun`";
    assert!(output.contains(fix), "{output}");
}

#[test]
fn a_user_without_user_namespaces_learns_the_fix() {
    let test = "a_user_without_user_namespaces_learns_the_fix";
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "unshare"]) {
        return;
    }
    // The limit is lowered in a user namespace that is made for it, and root's capabilities are
    // taken away, which leaves a user.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces
                  exec setpriv --bounding-set -all --inh-caps -all \"$0\" \"$@\"";
    let lab = Lab::new().unwrap();
    let outside = lab.namespace("outside").unwrap();
    let mut unshare = outside.command("unshare");
    unshare.args(["--user", "--map-root-user", "sh", "-c", script]);
    let (_, output) = again(unshare, &only("rootless::prints_the_refusal"));
    let fix = "fix: `sudo sysctl -w user.max_user_namespaces=15000`";
    assert!(output.contains(fix), "{output}");
}

#[test]
#[ignore = "started by a_user_has_a_lab_through_a_user_namespace"]
fn builds_a_tunnel_as_nobody() {
    if !is_child() {
        return;
    }
    let lab = Lab::new().unwrap();
    assert!(!lab.is_root());
    let daemon = Implementation::new("wireguard-go");
    let tunnel = Tunnel::new(&lab, &daemon, &daemon, &TunnelOptions::default()).unwrap();
    let inside = &tunnel.left.namespace;
    let to = tunnel.right.inner_v4().to_string();
    let answer = inside.command("ping").args(["-c1", "-W10", &to]).output();
    assert!(answer.unwrap().status.success());
    assert!(inside.link().statistics("wg0").unwrap().rx_packets > 0);
    assert!(matches!(inside.run(|| ()), Err(LabError::RunNeedsRoot)));
    let daemon = format!("/proc/{}/stat", tunnel.left.daemon.pid());
    drop(lab);
    assert!(!fs::read_to_string(daemon).is_ok_and(|stat| stat.contains(") S ")));
}

#[test]
#[ignore = "started by the tests of messages"]
fn prints_the_refusal() {
    if is_child() {
        println!("{}", Lab::new().err().unwrap());
    }
}

/// Runs a test of this binary as `nobody`, who finds a TUN node of `mode`.
fn as_nobody(test: &str, mode: &str) -> (bool, String) {
    let lab = Lab::new().unwrap();
    // The binary is copied, since its directory may be closed to nobody.
    let script = format!(
        "set -e
         mount -t tmpfs -o mode=0755 tmpfs /mnt
         mknod -m {mode} /mnt/tun c 10 200
         mount --bind /mnt/tun /dev/net/tun
         install -m 755 \"$0\" /mnt/test
         cd /
         exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/test \"$@\""
    );
    let mut shell = lab.namespace("outside").unwrap().command("sh");
    shell.args(["-c", &script]);
    again(shell, &only(test))
}

/// Lets `command` start this binary: whether it succeeded, and its output.
fn again(mut command: Command, arguments: &[&str]) -> (bool, String) {
    command.arg(env::current_exe().unwrap()).args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = command.env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    (status.success(), text)
}
