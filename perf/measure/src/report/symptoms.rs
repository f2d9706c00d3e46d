//! What it means when a group takes much of the CPU time, and what to try.

use crate::Group;

/// A group's share, read.
#[derive(Debug)]
pub(super) struct Symptom {
    /// The share that is not exceeded by TCP at full speed, measured with `convoy speedtest`.
    pub(super) usual: f64,
    pub(super) means: &'static str,
    pub(super) attempt: &'static str,
}

pub(super) fn of(group: Group) -> Symptom {
    let symptom = |usual, means, attempt| Symptom {
        usual,
        means,
        attempt,
    };
    match group {
        Group::Aead => symptom(
            1.0,
            "encryption: as it should be, the more the better",
            "nothing: it is the floor",
        ),
        Group::UdpSend => symptom(
            0.10,
            "few datagrams share a send, or the kernel cuts them again",
            "`convoy stats`: segments per send; is GSO on (`--gso`)? does the link cut (`ethtool -k`)?",
        ),
        Group::UdpReceive => symptom(
            0.05,
            "few datagrams share a receive",
            "`convoy stats`: segments per receive; is GRO on (`--udp-gro`)?",
        ),
        Group::TunRead => symptom(
            0.05,
            "few packets share a read",
            "`convoy stats`: packets per read; is TUN offload on (`--tun-offload`)? small packets?",
        ),
        Group::TunWrite => symptom(
            0.10,
            "few packets share a write; on the receiving host it holds the kernel's TCP, too",
            "`convoy stats`: packets per write; many flows, or packets out of order, do not coalesce",
        ),
        Group::WakeUps => symptom(
            0.30,
            "threads sleep and wake each other for little",
            "normal for little traffic; else too few processors, or `--batch` is small",
        ),
        Group::Copies => symptom(
            0.20,
            "bytes are moved between the kernel and here",
            "two copies a direction are the floor; a caller in user code is worth a look; cold pages? `perf/README.md`",
        ),
        Group::Checksums => symptom(
            0.08,
            "segments are summed here instead of by the device",
            "TUN offload asks for it; a link without checksum offload sums again (`ethtool -k`)",
        ),
        Group::Allocator => symptom(
            0.01,
            "something allocates for every packet",
            "look for its caller in the flame graph; `connlib/tunnel/tests/allocations.rs` should fail",
        ),
        Group::Other => symptom(
            0.20,
            "the state machine, cutting, coalescing; or functions without names",
            "the hottest functions; `[unknown]`: build with frame pointers, or `--call-graph dwarf`",
        ),
    }
}

/// What a thread of the daemon does.
pub(super) fn stage(thread: &str) -> &'static str {
    match thread {
        "tun-reader" => "reads the TUN, sums what will be cut",
        "tunnel" => "the event loop: encrypts and sends, receives and decrypts",
        "tun-writer" => "coalesces, and writes the TUN",
        _ => "control: configuration, signals",
    }
}
