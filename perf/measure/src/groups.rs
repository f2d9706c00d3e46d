//! What a stack was busy with, by the names of its functions.

use crate::Stacks;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Encryption and decryption.
    Aead,
    /// Handing datagrams to the kernel, and what it does with them meanwhile.
    UdpSend,
    /// Taking datagrams from the kernel.
    UdpReceive,
    /// Taking packets from the TUN device.
    TunRead,
    /// Giving packets to the TUN device, and what the kernel does with them meanwhile.
    TunWrite,
    /// Going to sleep, and waking others.
    WakeUps,
    /// Moving bytes, by whomever.
    Copies,
    /// Summing bytes, by whomever.
    Checksums,
    /// The program's own allocator.
    Allocator,
    /// All else: the state machine, cutting and coalescing, interrupts, what has no name.
    Other,
}

impl Group {
    /// All, as they are shown.
    pub const ALL: [Self; 10] = [
        Self::Aead,
        Self::UdpSend,
        Self::UdpReceive,
        Self::TunRead,
        Self::TunWrite,
        Self::WakeUps,
        Self::Copies,
        Self::Checksums,
        Self::Allocator,
        Self::Other,
    ];

    /// The group of a stack, whose functions come from the innermost on: the first that tells decides.
    /// A copy inside a send is a copy; a wake-up inside a TUN write is a wake-up.
    pub fn of<'a>(functions: impl Iterator<Item = &'a str>) -> Self {
        for function in functions {
            if let Some(group) = told_by(function) {
                return group;
            }
            if INTERRUPTS.iter().any(|name| function.starts_with(name)) {
                return Self::Other;
            }
        }
        Self::Other
    }

    /// As the report names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aead => "AEAD",
            Self::UdpSend => "UDP send",
            Self::UdpReceive => "UDP receive",
            Self::TunRead => "TUN read",
            Self::TunWrite => "TUN write",
            Self::WakeUps => "wake-ups",
            Self::Copies => "copies",
            Self::Checksums => "checksums",
            Self::Allocator => "allocator",
            Self::Other => "other",
        }
    }
}

/// The samples of each group, in the order of [`Group::ALL`].
pub(crate) fn counts(stacks: &Stacks) -> [(Group, u64); 10] {
    let mut counts = Group::ALL.map(|group| (group, 0));
    for (functions, count) in stacks.iter() {
        // The first name is the thread's.
        let group = Group::of(functions.skip(1).collect::<Vec<_>>().into_iter().rev());
        counts[group as usize].1 += count;
    }
    counts
}

/// What is below was interrupted; it did not ask for what is above.
const INTERRUPTS: [&str; 4] = [
    "asm_sysvec",
    "asm_common_interrupt",
    "el0t_64_irq",
    "el1h_64_irq",
];

/// Parts of names, of the kernel's functions, the C library's and ours; behind `^`, their beginning.
/// The first that fits counts.
const NAMES: [(Group, &[&str]); 9] = [
    (Group::Aead, &["chacha20", "poly1305", "aead"]),
    (Group::Checksums, &["checksum", "csum"]),
    (
        Group::Copies,
        &[
            "memcpy",
            "memmove",
            "rep_movs",
            "copy_user",
            "copy_to_iter",
            "copy_from_iter",
            "copy_to_user",
            "copy_from_user",
            "copy_bits",
        ],
    ),
    (
        Group::Allocator,
        &[
            "^malloc",
            "_malloc",
            "^calloc",
            "_calloc",
            "^realloc",
            "libc_realloc",
            "cfree",
            "_int_free",
            "__rust_alloc",
            "__rust_dealloc",
            "__rust_realloc",
            "Wiping",
        ],
    ),
    (
        Group::WakeUps,
        &[
            "futex",
            "epoll",
            "ep_poll",
            "ep_item_poll",
            "ep_send_events",
            "eventfd",
            "wake_up",
            "schedule",
            "task_switch",
            "do_sys_poll",
            "do_poll",
            "sys_poll",
            "nanosleep",
            "mpmc",
            "Parker",
        ],
    ),
    (
        Group::TunRead,
        &[
            "tun_chr_read",
            "tun_do_read",
            "tun_put_user",
            "tun_ring_recv",
        ],
    ),
    (Group::TunWrite, &["tun_chr_write", "tun_get_user"]),
    (
        Group::UdpSend,
        &["udp_sendmsg", "udpv6_sendmsg", "sys_sendm", "sendmsg"],
    ),
    (
        Group::UdpReceive,
        &[
            "udp_recvmsg",
            "udpv6_recvmsg",
            "sys_recvm",
            "recvmsg",
            "recvmmsg",
        ],
    ),
];

fn told_by(function: &str) -> Option<Group> {
    // Whatever runs under tokio has its scheduler among its callers.
    if function.contains("tokio::runtime::scheduler") {
        return None;
    }
    let is_in = |part: &&str| match part.strip_prefix('^') {
        Some(beginning) => function.starts_with(beginning),
        None => function.contains(part),
    };
    let fits = |(_, parts): &&(Group, &[&str])| parts.iter().any(is_in);
    NAMES.iter().find(fits).map(|&(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(innermost_first: &[&str]) -> Group {
        Group::of(innermost_first.iter().copied())
    }

    #[test]
    fn the_scheduler_that_everything_runs_under_tells_nothing() {
        let stack = [
            "convoy_proto::node",
            "tokio::runtime::scheduler::current_thread::Context::enter",
        ];
        assert_eq!(group(&stack), Group::Other);
    }

    #[test]
    fn the_innermost_function_that_tells_decides() {
        let send = [
            "ip_output",
            "udp_sendmsg",
            "__sys_sendmsg",
            "convoy_gso::flush",
        ];
        assert_eq!(group(&send), Group::UdpSend);
        let copy = ["rep_movs_alternative", "_copy_from_iter", "udp_sendmsg"];
        assert_eq!(group(&copy), Group::Copies);
        let wake = [
            "try_to_wake_up",
            "sock_def_readable",
            "tcp_v4_rcv",
            "tun_get_user",
        ];
        assert_eq!(group(&wake), Group::WakeUps);
        let open = [
            "ring_core_0_17_14__chacha20_poly1305_open_avx2",
            "[unknown]",
        ];
        assert_eq!(group(&open), Group::Aead);
        assert_eq!(group(&["csum_and_copy_from_iter_full"]), Group::Checksums);
        let start = "std::sys::backtrace::__rust_begin_short_backtrace";
        assert_eq!(
            group(&["convoy_tunnel::event_loop::tick", start]),
            Group::Other
        );
        assert_eq!(group(&["malloc"]), Group::Allocator);
        assert_eq!(group(&["__kmalloc", "udp_sendmsg"]), Group::UdpSend);
        assert_eq!(group(&[]), Group::Other);
    }

    #[test]
    fn what_was_interrupted_did_not_ask_for_the_interrupt() {
        let stack = [
            "net_rx_action",
            "asm_sysvec_apic_timer_interrupt",
            "chacha20_poly1305_seal",
        ];
        assert_eq!(group(&stack), Group::Other);
    }

    #[test]
    fn every_group_is_counted_in_its_place() {
        let sample = |function| format!("tunnel 1/2 1.5: 100 cycles: \n\t1 {function} (a)\n\n");
        let text = ["udp_sendmsg", "odd", "memcpy", "memcpy"]
            .map(sample)
            .concat();
        let counts = counts(&Stacks::of(text.as_bytes()).unwrap());
        for (place, (group, count)) in counts.into_iter().enumerate() {
            assert_eq!(group, Group::ALL[place]);
            let expected = match group {
                Group::Copies => 2,
                Group::UdpSend | Group::Other => 1,
                _ => 0,
            };
            assert_eq!(count, expected, "{}", group.name());
        }
    }
}
