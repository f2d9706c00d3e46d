//! The machine on which a result was measured.

use std::{fmt, fs};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, geteuid};
use procfs::{CpuInfo, Current as _, Meminfo};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1_024 * 1_024;

/// The properties of the machine that affect results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model name.
    pub cpu: Option<String>,
    /// Processors available to this process.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Whether this process runs as root.
    pub root: bool,
    /// TCP's congestion control in a lab's namespaces.
    pub congestion_control: Option<String>,
    /// `vm.percpu_pagelist_high_fraction`, which bounds the free pages that each processor keeps to itself. With
    /// 0, the default, the kernel adapts the bound, up to an eighth of the memory.
    pub percpu_pagelist_high_fraction: Option<u32>,
}

impl Host {
    /// This machine.
    pub fn of_this_machine() -> Self {
        let cpu = CpuInfo::current().ok();
        Self {
            kernel: setting("kernel/osrelease").unwrap_or_default(),
            cpu: cpu.and_then(|cpu| cpu.model_name(0).map(ToOwned::to_owned)),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: Meminfo::current().ok().map(|memory| memory.mem_total / MIB),
            root: geteuid().is_root(),
            congestion_control: congestion_control(),
            percpu_pagelist_high_fraction: setting("vm/percpu_pagelist_high_fraction")
                .and_then(|value| value.parse().ok()),
        }
    }
}

/// One line: processors, kernel, and settings that determine the speed.
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

/// Namespaces prefer cubic. They may use every congestion control that the host allows everyone.
fn congestion_control() -> Option<String> {
    let allowed = setting("net/ipv4/tcp_allowed_congestion_control")?;
    let file = "/proc/sys/net/ipv4/tcp_congestion_control";
    let is_read_only = access(file, AccessFlags::W_OK) == Err(Errno::EROFS);
    if !is_read_only && allowed.split_whitespace().any(|name| name == "cubic") {
        return Some("cubic".to_owned());
    }
    setting("net/ipv4/tcp_congestion_control")
}

/// Reads a kernel setting.
fn setting(name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(value.trim().to_owned())
}
