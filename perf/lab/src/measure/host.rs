//! The machine that a result belongs to.

use std::{fmt, fs};

use nix::{
    errno::Errno,
    sys::utsname::uname,
    unistd::{AccessFlags, access},
};
use serde::{Deserialize, Serialize};

/// The machine, as far as results depend on it.
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
    /// TCP's congestion control in a lab's namespaces.
    pub congestion_control: Option<String>,
    /// `vm.percpu_pagelist_high_fraction`, which bounds the free pages that a processor keeps for itself.
    /// With 0, the default, the kernel chooses as it runs, and keeps up to an eighth of memory so.
    pub percpu_pagelist_high_fraction: Option<u32>,
}

impl Host {
    /// This machine.
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
            percpu_pagelist_high_fraction: setting("vm/percpu_pagelist_high_fraction")
                .and_then(|value| value.parse().ok()),
        }
    }

    /// The fix for a lab's TCP that is not cubic.
    #[must_use]
    pub fn cubic_advice(&self) -> Option<String> {
        let used = self.congestion_control.as_deref()?;
        (used != "cubic").then(|| {
            format!(
                "TCP uses {used}, not cubic (fix, where the host keeps it from its namespaces: \
                 sysctl -w \"{ALLOWED}=$(sysctl -n {ALLOWED}) cubic\")"
            )
        })
    }
}

/// Congestion controls that all may use, and a namespace as its default.
const ALLOWED: &str = "net/ipv4/tcp_allowed_congestion_control";

/// In a line: processors, kernel, and settings that decide the speed.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.as_deref().unwrap_or("an unnamed CPU");
        write!(f, "{} × {cpu} · Linux {}", self.cpus, self.kernel)?;
        let pages = self.percpu_pagelist_high_fraction;
        match pages.filter(|&fraction| fraction != 0) {
            Some(fraction) => write!(f, " · vm.percpu_pagelist_high_fraction={fraction}"),
            None => Ok(()),
        }
    }
}

/// Namespaces prefer cubic, and may use what the host lets everyone use, where settings can be written.
fn congestion_control() -> Option<String> {
    let allowed = setting(ALLOWED)?;
    let file = "/proc/sys/net/ipv4/tcp_congestion_control";
    let is_read_only = access(file, AccessFlags::W_OK) == Err(Errno::EROFS);
    if !is_read_only && allowed.split_whitespace().any(|name| name == "cubic") {
        return Some("cubic".to_owned());
    }
    setting("net/ipv4/tcp_congestion_control")
}

/// A setting of the kernel.
fn setting(name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(value.trim().to_owned())
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

    #[test]
    fn settings_are_shown_beside_the_kernel() {
        let mut host = Host {
            kernel: "6.18".to_owned(),
            cpu: Some("A CPU".to_owned()),
            cpus: 2,
            percpu_pagelist_high_fraction: Some(0),
            ..Host::of_this_machine()
        };
        assert_eq!(host.to_string(), "2 × A CPU · Linux 6.18");
        host.cpu = None;
        host.percpu_pagelist_high_fraction = Some(2000);
        assert_eq!(
            host.to_string(),
            "2 × an unnamed CPU · Linux 6.18 · vm.percpu_pagelist_high_fraction=2000"
        );
    }

    #[test]
    fn where_tcp_is_not_cubic_there_is_advice() {
        let mut host = Host::of_this_machine();
        for (used, is_advised) in [(Some("cubic"), false), (Some("bbr"), true), (None, false)] {
            host.congestion_control = used.map(ToOwned::to_owned);
            assert_eq!(host.cubic_advice().is_some(), is_advised, "{used:?}");
        }
    }
}
