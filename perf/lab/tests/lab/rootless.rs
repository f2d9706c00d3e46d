//! A user to whom the kernel denies user namespaces.

use std::env;

use convoy_lab::{Lab, require_programs, require_root_lab};

/// Set for the child process that runs the ignored test.
const CHILD: &str = "CONVOY_LAB_CHILD";

#[test]
fn a_user_without_user_namespaces_learns_the_fix() {
    let test = "a_user_without_user_namespaces_learns_the_fix";
    if !require_root_lab(test) || !require_programs(test, &["setpriv", "unshare"]) {
        return;
    }
    // Lowers the limit in a user namespace created for this, and drops root's capabilities, which leaves an
    // ordinary user.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces
                  exec setpriv --bounding-set -all --inh-caps -all \"$0\" \"$@\"";
    let lab = Lab::new().unwrap();
    let outside = lab.namespace("outside").unwrap();
    let mut unshare = outside.command("unshare");
    unshare
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "rootless::prints_the_refusal"])
        .args(["--ignored", "--nocapture"]);
    let output = unshare.env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let fix = "fix: `sudo sysctl -w user.max_user_namespaces=15000`";
    assert!(said.contains(fix), "{output:?}");
}

#[test]
#[ignore = "started by a_user_without_user_namespaces_learns_the_fix"]
fn prints_the_refusal() {
    if env::var_os(CHILD).is_some() {
        println!("{}", Lab::new().err().unwrap());
    }
}
