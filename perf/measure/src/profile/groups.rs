//! Kinds of work, recognised by function names.

use std::collections::BTreeMap;

use super::stacks::Stacks;

/// A kind of work.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// The highest usual share for TCP at full speed, measured with `convoy speedtest`.
    pub(super) usual: f64,
    /// The meaning of a larger share.
    pub(super) means: &'static str,
    /// The remedy.
    pub(super) attempt: &'static str,
    /// Parts of function names in the kernel, the C library and our code; `^` marks the start of a name.
    functions: &'static str,
}

/// All groups in the report's order. A name that matches several groups belongs to the first.
pub(super) static GROUPS: [Group; 10] = [
    Group {
        name: "AEAD",
        usual: 1.0,
        means: "encryption and decryption: the higher, the better",
        attempt: "nothing: this is the minimum",
        functions: "chacha20 poly1305 aead",
    },
    Group {
        name: "UDP send",
        usual: 0.10,
        means: "few datagrams per send, or the kernel cuts batches again",
        attempt: "`convoy stats`: segments per send; is GSO on (`--gso`)? does the link cut (`ethtool -k`)?",
        functions: "udp_sendmsg udpv6_sendmsg sys_sendm sendmsg",
    },
    Group {
        name: "UDP receive",
        usual: 0.05,
        means: "few datagrams per receive",
        attempt: "`convoy stats`: segments per receive; is GRO on (`--udp-gro`)?",
        functions: "udp_recvmsg udpv6_recvmsg sys_recvm recvmsg recvmmsg",
    },
    Group {
        name: "TUN read",
        usual: 0.05,
        means: "few packets per read",
        attempt: "`convoy stats`: packets per read; is TUN offload on (`--tun-offload`)? small packets?",
        functions: "tun_chr_read tun_do_read tun_put_user tun_ring_recv",
    },
    Group {
        name: "TUN write",
        usual: 0.10,
        means: "few packets per write; on the receiving host it includes the kernel's TCP",
        attempt: "`convoy stats`: packets per write; many flows, or packets out of order, do not coalesce",
        functions: "tun_chr_write tun_get_user",
    },
    Group {
        name: "wake-ups",
        usual: 0.30,
        means: "threads sleep and wake each other for little work",
        attempt: "normal for sparse traffic; otherwise too few processors, or a small `--batch`",
        functions: "futex epoll ep_poll ep_item_poll ep_send_events eventfd wake_up schedule task_switch \
                    do_sys_poll do_poll sys_poll nanosleep mpmc Parker",
    },
    Group {
        name: "checksums",
        usual: 0.08,
        means: "segments are checksummed here instead of by the device",
        attempt: "TUN offload needs it; a link without checksum offload does it again (`ethtool -k`)",
        functions: "checksum csum",
    },
    Group {
        name: "copies",
        usual: 0.20,
        means: "bytes move between kernel and user space",
        attempt: "two copies per direction are the minimum; look at callers in user code; cold pages? `perf/README.md`",
        functions: "memcpy memmove rep_movs copy_user copy_to_iter copy_from_iter copy_to_user \
                    copy_from_user copy_bits",
    },
    Group {
        name: "allocator",
        usual: 0.01,
        means: "something allocates per packet",
        attempt: "look for its caller in the flame graph; `connlib/tunnel/tests/allocations.rs` should fail",
        functions: "^malloc _malloc ^calloc _calloc ^realloc libc_realloc cfree _int_free __rust_alloc \
                    __rust_dealloc __rust_realloc Wiping",
    },
    Group {
        name: "other",
        usual: 0.20,
        means: "the state machine, cutting, coalescing, interrupts; or functions without names",
        attempt: "look at the hottest functions; `[unknown]`: build with frame pointers, or use `--call-graph dwarf`",
        functions: "",
    },
];

/// The interrupted function did not call the interrupt's handler.
const INTERRUPTS: [&str; 4] = [
    "asm_sysvec",
    "asm_common_interrupt",
    "el0t_64_irq",
    "el1h_64_irq",
];
/// Callers of any kind of work: tokio's scheduler, and the function that wipes the stack after it.
const CALLERS: [&str; 2] = ["tokio::runtime::scheduler", "convoy_aead::wipe"];

/// The group of a stack, whose functions begin with the outermost one. The innermost function with a known
/// name decides: a copy inside a send is a copy, a wake-up inside a TUN write is a wake-up.
pub(super) fn of(functions: &[&str]) -> &'static Group {
    for function in functions.iter().rev() {
        if let Some(group) = GROUPS.iter().find(|group| group.includes(function)) {
            return group;
        }
        if INTERRUPTS.iter().any(|name| function.starts_with(name)) {
            break;
        }
    }
    &GROUPS[GROUPS.len() - 1]
}

/// The share of each group, by its name.
pub(super) fn shares(stacks: &Stacks) -> BTreeMap<&'static str, f64> {
    let mut shares: BTreeMap<_, _> = GROUPS.iter().map(|group| (group.name, 0.0)).collect();
    shares.extend(stacks.shares(|_, functions| Some(of(functions).name)));
    shares
}

impl Group {
    fn includes(&self, function: &str) -> bool {
        let mut parts = self.functions.split_ascii_whitespace();
        !CALLERS.iter().any(|caller| function.contains(caller))
            && parts.any(|part| match part.strip_prefix('^') {
                Some(beginning) => function.starts_with(beginning),
                None => function.contains(part),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_whose_name_is_known_decides() {
        let cases = "\
convoy_gso::flush;__sys_sendmsg;udp_sendmsg;ip_output UDP send
udp_sendmsg;_copy_from_iter;rep_movs_alternative copies
tun_get_user;tcp_v4_rcv;try_to_wake_up wake-ups
[unknown];ring_core_0_17_14__chacha20_poly1305_open_avx2 AEAD
convoy_aead::Aead::seal;convoy_aead::wipe::apart;convoy_aead::lanes::avx512::run AEAD
convoy_aead::Aead::seal;convoy_aead::wipe::wipe AEAD
convoy_aead::wipe::apart;curve25519_dalek::montgomery::MontgomeryPoint::mul_bits_be other
csum_and_copy_from_iter_full checksums
std::sys::backtrace::__rust_begin_short_backtrace other
malloc allocator
udp_sendmsg;__kmalloc UDP send
chacha20_poly1305_seal;asm_sysvec_apic_timer_interrupt;net_rx_action other
tokio::runtime::scheduler::current_thread::Context::enter other
 other";
        for case in cases.lines() {
            let (functions, name) = case.split_once(' ').unwrap();
            let of = of(&functions.split(';').collect::<Vec<_>>());
            assert_eq!(of.name, name, "{functions}");
        }
    }
}
