//! The walls around a tunnel: what whoever takes it over still cannot do, and what others cannot prepare.

mod descriptors;
#[cfg(target_arch = "x86_64")]
mod inside;
mod keeper;
mod machine;
#[cfg(target_arch = "x86_64")]
mod privileges;
#[cfg(target_arch = "x86_64")]
mod taken_over;

use convoy_lab::{Pid, eventually};
#[cfg(target_arch = "x86_64")]
use inside::Inside;

use crate::{client::process::proc_file, confinement::field, scene::DEADLINE};

/// Waits until a process has given up its rights: a daemon answers earlier.
fn becomes_confined(pid: Pid) {
    let is_confined = || (field(&proc_file(pid, "status"), "Seccomp") == "2").then_some(());
    assert!(eventually(DEADLINE, is_confined).is_some());
}

/// The user of a process.
fn uid(pid: Pid) -> u32 {
    let users = field(&proc_file(pid, "status"), "Uid");
    users.split('\t').next().unwrap().parse().unwrap()
}
