//! `shares.json`: the report's shares, machine-readable.

use std::{collections::BTreeMap, env};

use anyhow::Result;
use convoy_lab::measure::Host;
use serde::Serialize;

use super::{directory::Directory, findings::Findings, groups, stacks::Stacks, syscalls::Syscalls};

pub(super) const FILE: &str = "shares.json";
/// Kernel functions that send a datagram or a batch of them.
const SENDS: [&str; 2] = ["udp_sendmsg", "udpv6_sendmsg"];
/// System calls that send.
const SEND_CALLS: [&str; 3] = ["sendmsg", "sendmmsg", "sendto"];
/// The C library's copying functions, whatever instructions they use.
const COPIES: [&str; 2] = ["memcpy", "memmove"];
/// Entry points of the kernel, on x86-64 and other processors.
const KERNEL_ENTRIES: [&str; 4] = ["entry_SYSCALL", "asm_", "do_syscall", "el0"];

/// The findings of a profile; each share is of all samples of its daemons, from 0 to 1.
#[derive(Serialize)]
struct Shares<'a> {
    /// The subject of the profile.
    what: &'a str,
    /// The command line of this program.
    command: Vec<String>,
    /// The machine of the recording; `None` for a text from elsewhere.
    host: Option<Host>,
    /// The event that triggered the samples.
    event: &'a str,
    /// System calls that send, of all daemons together, per 10⁹ bytes of packets through the tunnel; from the
    /// run under strace.
    sends_per_gb: Option<f64>,
    all: Part,
    /// In command-line order; for a speed test, first the daemon that sends in `tcp-up`.
    daemons: Vec<Part>,
}

/// Samples of one daemon or of all.
#[derive(Serialize)]
struct Part {
    /// `None` for all daemons.
    pid: Option<u32>,
    samples: u64,
    /// As in the report, by the group's name.
    groups: BTreeMap<&'static str, f64>,
    /// Everything below `udp_sendmsg` and `udpv6_sendmsg`, including copies and wake-ups. If the interface
    /// delivers packets within the call, as a veth does, this includes everything up to the receiver's
    /// socket.
    udp_sendmsg: f64,
    /// Copies outside the kernel (`memcpy` and `memmove` of the C library), by thread.
    ///
    /// On the thread `tunnel` these are, outbound, the copies of packets into the stack buffer and, once
    /// sealed, from it into the queue; inbound, those of datagrams into the writer's batch if ring opens
    /// them. A sample does not show which, since these functions keep no frame.
    user_copies: BTreeMap<String, f64>,
}

/// Writes the shares of all daemons together and of each one.
pub(super) fn write(directory: &Directory, findings: &Findings) -> Result<()> {
    let stacks = &findings.stacks;
    let daemon = |pid| Part::of(&stacks.of_process(pid), Some(pid));
    let pids = findings.pids.iter().map(|pid| pid.as_raw().cast_unsigned());
    let mut pids: Vec<u32> = pids.collect();
    if pids.is_empty() {
        pids.extend(stacks.processes());
    }
    let shares = Shares {
        what: &findings.what,
        command: env::args().collect(),
        host: (!findings.pids.is_empty()).then(Host::of_this_machine),
        event: stacks.event(),
        sends_per_gb: findings.syscalls.as_ref().and_then(sends_per_gb),
        all: Part::of(stacks, None),
        daemons: pids.into_iter().map(daemon).collect(),
    };
    directory.write_json(FILE, &shares)
}

impl Part {
    fn of(stacks: &Stacks, pid: Option<u32>) -> Self {
        let sending = stacks.shares(|_, functions| functions.iter().any(is_send).then_some(()));
        Self {
            pid,
            samples: stacks.total(),
            groups: groups::shares(stacks),
            udp_sendmsg: sending.into_values().sum(),
            user_copies: stacks
                .shares(|thread, functions| is_user_copy(functions).then(|| thread.to_owned())),
        }
    }
}

fn is_send(function: &&str) -> bool {
    // The compiler's suffix begins with a dot.
    let name = function.split('.').next().unwrap_or(function);
    SENDS.contains(&name)
}

/// `functions` begin with the outermost one.
fn is_user_copy(functions: &[&str]) -> bool {
    let is_kernels = |name: &&str| KERNEL_ENTRIES.iter().any(|entry| name.starts_with(entry));
    let copies = |name: &&str| COPIES.iter().any(|copy| name.contains(copy));
    functions.last().is_some_and(copies) && !functions.iter().any(is_kernels)
}

fn sends_per_gb(syscalls: &Syscalls) -> Option<f64> {
    let is_send = |name: &String| SEND_CALLS.contains(&name.as_str());
    let sends = syscalls.calls.iter().filter(|call| is_send(&call.name));
    let count: u64 = sends.map(|call| call.count).sum();
    Some(count as f64 / syscalls.gigabytes?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::syscalls::Call;

    #[test]
    fn a_send_is_all_below_it_whichever_group_that_is() {
        let stacks = Stacks::of_samples(&[
            (7, "tunnel;__sys_sendmsg;udp_sendmsg;try_to_wake_up"),
            (7, "tunnel;udpv6_sendmsg.isra.0"),
            (8, "tunnel;udpv6_sendmsg"),
            (8, "tunnel;udp_sendmsg_but_another"),
            (8, "tunnel;__sys_sendmsg"),
        ]);
        let all = Part::of(&stacks, None);
        assert_eq!((all.samples, all.udp_sendmsg), (5, 0.6));
        assert_eq!(all.groups["wake-ups"], 0.2);
        assert_eq!(Part::of(&stacks.of_process(7), Some(7)).udp_sendmsg, 1.0);
    }

    #[test]
    fn copies_of_the_kernel_are_left_out_and_ours_are_counted_by_thread() {
        let stacks = "\
tunnel;tick;__memmove_avx_unaligned_erms
tunnel;tick;__memmove_avx_unaligned_erms
tun-writer;__memcpy_generic
tunnel;entry_SYSCALL_64_after_hwframe;memcpy_orig
tunnel;x64;udp_sendmsg;rep_movs_alternative
tunnel;__memcpy_generic;asm_sysvec_apic_timer_interrupt;irq
tunnel;__memcpy_generic;tick
tunnel";
        let samples: Vec<_> = stacks.lines().map(|stack| (7, stack)).collect();
        let copies = Part::of(&Stacks::of_samples(&samples), None).user_copies;
        let copies = copies.iter().map(|(name, share)| (&**name, *share));
        assert!(copies.eq([("tun-writer", 0.125), ("tunnel", 0.25)]));
    }

    #[test]
    fn all_calls_that_send_are_counted_for_a_gigabyte() {
        let calls = [("sendmsg", 10), ("read", 30), ("sendmmsg", 20)];
        let syscalls = |gigabytes| Syscalls {
            gigabytes,
            calls: calls.map(Call::counted).to_vec(),
            ..Syscalls::default()
        };
        assert_eq!(sends_per_gb(&syscalls(Some(2.0))), Some(15.0));
        assert_eq!(sends_per_gb(&syscalls(None)), None);
    }
}
