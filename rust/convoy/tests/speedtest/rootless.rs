//! The speed test without root.
//!
//! Root plays a user: `nobody`, in a private mount namespace with its own TUN node.

use std::process::Output;

use convoy_lab::{Lab, require_programs, require_root_lab};

use crate::{PROGRAM, parsed, turn};

#[test]
fn a_user_can_measure() {
    let test = "a_user_can_measure";
    let Some(output) = as_nobody(test, "666") else {
        return;
    };
    let report = parsed(&output);
    assert_eq!(report["host"]["root"], false);
    assert!(report["runs"][0]["gbps"].as_f64().unwrap() > 0.0);
    assert!(report["runs"][0]["cpu_s_per_gb"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_user_who_may_not_open_the_tun_node_gets_the_fix() {
    let test = "a_user_who_may_not_open_the_tun_node_gets_the_fix";
    let Some(output) = as_nobody(test, "600") else {
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        errors.contains("fix: `sudo chmod 0666 /dev/net/tun`"),
        "{errors}"
    );
    assert!(output.stdout.is_empty());
}

/// Runs a short speed test as `nobody`, with a TUN node of mode `mode`.
fn as_nobody(test: &str, mode: &str) -> Option<Output> {
    let _turn = turn(test)?;
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "mknod"]) {
        return None;
    }
    let lab = Lab::new().unwrap();
    // A copy of the program, since `nobody` may have no access to its directory.
    let script = format!(
        "set -e
         mount -t tmpfs -o mode=0755 tmpfs /mnt
         mknod -m {mode} /mnt/tun c 10 200
         mount --bind /mnt/tun /dev/net/tun
         install -m 755 \"$0\" /mnt/convoy
         cd /
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \
             /mnt/convoy speedtest --secs 1 --tests tcp-up --json"
    );
    let mut shell = lab.namespace("outside").unwrap().command("sh");
    Some(shell.args(["-c", &script, PROGRAM]).output().unwrap())
}
