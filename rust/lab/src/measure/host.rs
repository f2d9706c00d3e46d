//! The machine that a result belongs to.

use std::fs;

use nix::{
    errno::Errno,
    sys::utsname::uname,
    unistd::{AccessFlags, access},
};
use serde::{Deserialize, Serialize};

/// What a result depends on besides the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model name.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Whether this process is root's.
    pub root: bool,
    /// What TCP uses in a lab's namespaces.
    pub congestion_control: Option<String>,
}

impl Host {
    /// What can be learned of this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self {
            kernel: uname()
                .map(|name| name.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            cpu: value_of("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib("MemTotal").map(|kib| kib / 1024),
            root: nix::unistd::geteuid().is_root(),
            congestion_control: congestion_control(),
        }
    }
}

/// Namespaces prefer cubic, and may use what the host lets everyone use, where settings can be written.
fn congestion_control() -> Option<String> {
    let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).ok();
    let allowed = read("allowed_congestion_control")?;
    let setting = "/proc/sys/net/ipv4/tcp_congestion_control";
    let is_read_only = access(setting, AccessFlags::W_OK) == Err(Errno::EROFS);
    if !is_read_only && allowed.split_whitespace().any(|name| name == "cubic") {
        return Some("cubic".to_owned());
    }
    Some(read("congestion_control")?.trim().to_owned())
}

/// A line of `/proc/meminfo`, in KiB.
#[must_use]
pub fn memory_kib(key: &str) -> Option<u64> {
    let value = value_of("/proc/meminfo", key)?;
    value.strip_suffix(" kB")?.parse().ok()
}

fn value_of(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_processors_and_memory() {
        let host = Host::of_this_machine();
        assert!(host.kernel.contains('.'), "{host:?}");
        assert!(host.cpus >= 1);
        assert!(host.memory_mib.unwrap() > 0);
        assert!(memory_kib("MemAvailable").unwrap() <= memory_kib("MemTotal").unwrap());
        assert_eq!(memory_kib("Nonsense"), None);
    }
}
