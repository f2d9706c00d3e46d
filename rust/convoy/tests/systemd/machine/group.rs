//! A control group for the machine, so that the host's stay as they are.

use std::{
    path::Path,
    process::{self, Command, Stdio},
};

use convoy_lab::eventually;

use super::DEADLINE;

/// A shell script that moves itself to the group `$GROUP` and executes its arguments.
pub(super) const ENTER: &str = r#"
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        if [ -w $hierarchy/cgroup.procs ]; then
            mkdir -p $hierarchy/$GROUP; echo $$ > $hierarchy/$GROUP/cgroup.procs
        fi
    done
    exec "$@""#;

/// The group's name.
pub(super) fn name() -> String {
    format!("convoy-test-{}", process::id())
}

/// Removes the group once its processes have ended.
pub(super) fn remove() {
    let groups = ["systemd/", "unified/", ""].map(|at| format!("/sys/fs/cgroup/{at}{}", name()));
    let remove = ["-depth", "-type", "d", "-exec", "rmdir", "{}", "+"];
    // The kernel empties them in its own time.
    eventually(DEADLINE, || {
        let left: Vec<_> = groups
            .iter()
            .filter(|group| Path::new(group).exists())
            .collect();
        if !left.is_empty() {
            let _ = Command::new("find")
                .args(&left)
                .args(remove)
                .stderr(Stdio::null())
                .status();
        }
        left.is_empty().then_some(())
    });
}
