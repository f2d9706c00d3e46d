//! `shares.json`: the shares of the report, for programs.

use std::{collections::BTreeMap, env};

use convoy_lab::measure::Host;
use serde::Serialize;

use crate::{
    ProfileError, Stacks, directory::Directory, groups, report::Findings, syscalls::Syscalls,
};

pub(crate) const FILE: &str = "shares.json";
/// The kernel's functions that send a datagram, or a batch of them.
const SENDS: [&str; 2] = ["udp_sendmsg", "udpv6_sendmsg"];
/// System calls that send.
const SEND_CALLS: [&str; 3] = ["sendmsg", "sendmmsg", "sendto"];
/// The C library's functions that copy, whatever instructions they use.
const COPIES: [&str; 2] = ["memcpy", "memmove"];
/// The ways into the kernel, of this processor and of others.
const KERNEL_ENTRIES: [&str; 4] = ["entry_SYSCALL", "asm_", "do_syscall", "el0"];

/// What a profile has found; each share is of all samples of its daemons, from 0 to 1.
#[derive(Debug, Serialize)]
struct Shares<'a> {
    /// What was profiled.
    what: &'a str,
    /// As this program was called.
    command: Vec<String>,
    /// Where it was recorded; none for a text from elsewhere.
    host: Option<Host>,
    /// What was counted between two samples.
    event: &'a str,
    /// System calls that send, of all daemons together, for 10⁹ bytes of packets that went through the
    /// tunnel: from the run under strace.
    sends_per_gb: Option<f64>,
    all: Part,
    /// In the order in which they were named; of a speed test first the one that sends in `tcp-up`.
    daemons: Vec<Part>,
}

/// Samples of one daemon, or of all.
#[derive(Debug, Serialize)]
struct Part {
    /// None for all.
    pid: Option<u32>,
    samples: u64,
    /// As in the report, by the group's name.
    groups: BTreeMap<&'static str, f64>,
    /// Everything below `udp_sendmsg` and `udpv6_sendmsg`, copies and wake-ups too. Where the
    /// interface hands packets on within the call, as a veth does, that ends where they lie in the
    /// receiver's socket.
    udp_sendmsg: f64,
    /// Copying outside of the kernel (`memcpy` and `memmove` of the C library), by thread.
    ///
    /// On the thread `tunnel` that is, of what is sent, each packet into the stack buffer and, sealed,
    /// out of it into the queue; of what is received, each datagram into the writer's batch. Which of
    /// them a sample belongs to is not to be seen: these functions keep no frame.
    user_copies: BTreeMap<String, f64>,
}

/// Writes what `findings` say of the daemons `pids`; without pids, of all that were seen.
pub(crate) fn write(
    directory: &Directory,
    findings: &Findings<'_>,
    pids: Option<&[u32]>,
) -> Result<(), ProfileError> {
    let stacks = findings.stacks;
    let seen = || stacks.processes().into_iter().collect();
    let daemons = pids.map_or_else(seen, <[u32]>::to_vec);
    let daemon = |&pid: &u32| Part::of(&stacks.of_process(pid), Some(pid));
    let shares = Shares {
        what: findings.what,
        command: env::args().collect(),
        host: pids.map(|_| Host::of_this_machine()),
        event: stacks.event(),
        sends_per_gb: findings.syscalls.and_then(sends_per_gb),
        all: Part::of(stacks, None),
        daemons: daemons.iter().map(daemon).collect(),
    };
    let json = serde_json::to_string_pretty(&shares).unwrap_or_default() + "\n";
    directory.write(FILE, json.as_bytes())
}

impl Part {
    fn of(stacks: &Stacks, pid: Option<u32>) -> Self {
        let samples = stacks.total();
        let share = |count: u64| count as f64 / samples.max(1) as f64;
        let groups = groups::counts(stacks);
        let mut sending = 0;
        let mut copies: BTreeMap<String, u64> = BTreeMap::new();
        for (mut names, count) in stacks.iter() {
            let thread = names.next().unwrap_or_default().to_owned();
            let functions: Vec<_> = names.collect();
            if functions.iter().any(is_send) {
                sending += count;
            }
            if is_user_copy(&functions) {
                *copies.entry(thread).or_default() += count;
            }
        }
        let copies = copies.into_iter();
        Self {
            pid,
            samples,
            groups: groups
                .map(|(group, count)| (group.name(), share(count)))
                .into(),
            udp_sendmsg: share(sending),
            user_copies: copies.map(|(name, count)| (name, share(count))).collect(),
        }
    }
}

fn is_send(function: &&str) -> bool {
    // Behind a dot the compiler says what it has made of it.
    let name = function.split('.').next().unwrap_or(function);
    SENDS.contains(&name)
}

/// `functions` begin with the outermost.
fn is_user_copy(functions: &[&str]) -> bool {
    let is_kernels = |name: &&str| KERNEL_ENTRIES.iter().any(|entry| name.starts_with(entry));
    let copies = |name: &&str| COPIES.iter().any(|copy| name.contains(copy));
    functions.last().is_some_and(copies) && !functions.iter().any(is_kernels)
}

fn sends_per_gb(syscalls: &Syscalls) -> Option<f64> {
    let gigabytes = syscalls.gigabytes?;
    let sends = syscalls
        .calls
        .iter()
        .filter(|call| SEND_CALLS.contains(&call.name.as_str()));
    Some(sends.map(|call| call.count).sum::<u64>() as f64 / gigabytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;
    use crate::syscalls::{Call, Total};

    /// Innermost first.
    fn sample(pid: u32, thread: &str, functions: &[&str]) -> String {
        let frames = functions.iter().map(|name| format!("\t1 {name} (a)\n"));
        let frames: String = frames.collect();
        format!("{thread} {pid}/9 1.5: 100 cycles: \n{frames}\n")
    }

    fn written(samples: &[String], syscalls: Option<&Syscalls>, pids: Option<&[u32]>) -> Value {
        let stacks = Stacks::of(samples.concat().as_bytes()).unwrap();
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::open(outer.path()).unwrap();
        let findings = Findings {
            what: "a test",
            stacks: &stacks,
            before: None,
            notes: Vec::new(),
            stat: None,
            syscalls,
        };
        write(&directory, &findings, pids).unwrap();
        serde_json::from_slice(&fs::read(directory.file(FILE)).unwrap()).unwrap()
    }

    #[test]
    fn each_daemon_has_its_shares_in_the_order_in_which_they_were_named() {
        let seal = ["chacha20_poly1305_seal"];
        let samples = [
            sample(7, "tunnel", &["udp_sendmsg"]),
            sample(8, "tunnel", &seal),
            sample(7, "tunnel", &seal),
            sample(8, "tunnel", &seal),
        ];
        let shares = written(&samples, None, Some(&[8, 7]));
        assert_eq!(shares["what"], "a test");
        assert_eq!(shares["event"], "cycles");
        assert!(shares["host"]["kernel"].is_string(), "{shares}");
        assert!(!shares["command"].as_array().unwrap().is_empty());
        let part = |part: &Value| {
            let figures = ["pid", "samples", "udp_sendmsg"].map(|key| part[key].clone());
            (figures, part["groups"]["AEAD"].clone())
        };
        let all = part(&shares["all"]);
        assert_eq!(all, ([Value::Null, json!(4), json!(0.25)], json!(0.75)));
        let first = part(&shares["daemons"][0]);
        assert_eq!(first, ([json!(8), json!(2), json!(0.0)], json!(1.0)));
        let second = part(&shares["daemons"][1]);
        assert_eq!(second, ([json!(7), json!(2), json!(0.5)], json!(0.5)));
    }

    #[test]
    fn a_send_is_all_below_it_whichever_group_that_is() {
        let samples = [
            sample(
                7,
                "tunnel",
                &["try_to_wake_up", "udp_sendmsg", "__sys_sendmsg"],
            ),
            sample(7, "tunnel", &["udpv6_sendmsg.isra.0"]),
            sample(7, "tunnel", &["udpv6_sendmsg"]),
            sample(7, "tunnel", &["udp_sendmsg_but_another"]),
            sample(7, "tunnel", &["__sys_sendmsg"]),
        ];
        let shares = written(&samples, None, None);
        assert_eq!(shares["all"]["udp_sendmsg"], 0.6);
        assert_eq!(shares["all"]["groups"]["wake-ups"], 0.2);
    }

    #[test]
    fn the_kernels_copies_are_none_of_ours_and_ours_are_told_apart_by_thread() {
        let ours = "__memmove_avx_unaligned_erms";
        let samples = [
            sample(7, "tunnel", &[ours, "tick"]),
            sample(7, "tunnel", &[ours, "tick"]),
            sample(7, "tun-writer", &["__memcpy_generic"]),
            sample(
                7,
                "tunnel",
                &["memcpy_orig", "entry_SYSCALL_64_after_hwframe"],
            ),
            sample(7, "tunnel", &["rep_movs_alternative", "udp_sendmsg", "x64"]),
            sample(
                7,
                "tunnel",
                &["irq", "asm_sysvec_apic_timer_interrupt", ours],
            ),
            sample(7, "tunnel", &["tick", ours]),
            sample(7, "tunnel", &[]),
        ];
        let shares = written(&samples, None, None);
        let copies = &shares["all"]["user_copies"];
        assert_eq!(*copies, json!({"tunnel": 0.25, "tun-writer": 0.125}));
        assert!(shares["host"].is_null(), "recorded elsewhere: {shares}");
    }

    #[test]
    fn all_calls_that_send_are_counted_for_a_gigabyte() {
        let call = |name: &str, count| Call {
            name: name.to_owned(),
            count,
            errors: 0,
            seconds: 0.0,
            calls_per_gb: None,
        };
        let mut syscalls = Syscalls {
            gigabytes: Some(2.0),
            total: Total {
                count: 60,
                errors: 0,
                calls_per_gb: None,
            },
            calls: vec![call("sendmsg", 10), call("read", 30), call("sendmmsg", 20)],
            waits: Vec::new(),
        };
        let samples = [sample(7, "tunnel", &["tick"])];
        let shares = written(&samples, Some(&syscalls), None);
        assert_eq!(shares["sends_per_gb"], 15.0);
        syscalls.gigabytes = None;
        let shares = written(&samples, Some(&syscalls), None);
        assert!(shares["sends_per_gb"].is_null());
    }
}
