//! The machine that a result belongs to.

use std::{fmt, fs};

use nix::{
    errno::Errno,
    sys::utsname::uname,
    unistd::{AccessFlags, access},
};
use procfs::{CpuInfo, Current as _, Meminfo};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1_024 * 1_024;
/// Congestion controls that all may use, and a namespace as its default.
const ALLOWED: &str = "net/ipv4/tcp_allowed_congestion_control";

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
    pub fn of_this_machine() -> Self {
        let cpu = CpuInfo::current().ok();
        Self {
            kernel: uname()
                .map(|name| name.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            cpu: cpu.and_then(|cpu| cpu.model_name(0).map(ToOwned::to_owned)),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: Meminfo::current().ok().map(|memory| memory.mem_total / MIB),
            root: nix::unistd::geteuid().is_root(),
            congestion_control: congestion_control(),
            percpu_pagelist_high_fraction: setting("vm/percpu_pagelist_high_fraction")
                .and_then(|value| value.parse().ok()),
        }
    }
}

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
