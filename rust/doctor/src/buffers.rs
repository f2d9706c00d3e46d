//! Buffers: those of the UDP sockets, and the queue in front of the tunnel's interface.

use convoy_gso::{BoundSockets, SocketOptions, UdpSockets, udp::SOCKET_BUFFER_BYTES};
use convoy_tun::TX_QUEUE_LEN;

use super::{finding::Finding, sysctl};

/// Buffers that the kernel grants to this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// The smaller buffer of both directions in bytes, as the kernel counts: twice what was requested.
    pub(super) granted: usize,
    /// The smaller of `net.core.rmem_max` and `wmem_max`.
    pub(super) limit: Option<usize>,
    /// Whether this process has the rights of the daemon.
    pub(super) is_privileged: bool,
}

impl Buffers {
    /// Opens the sockets that a tunnel opens. Needs a tokio runtime.
    pub(super) fn gather(is_privileged: bool) -> std::io::Result<Self> {
        let bound = BoundSockets::open(SocketOptions::default())?;
        let (receive, send) = UdpSockets::register(bound)?
            .buffer_bytes()
            .unwrap_or_default();
        let limits = ["net.core.rmem_max", "net.core.wmem_max"].map(sysctl::number);
        Ok(Self {
            granted: receive.min(send),
            limit: limits.into_iter().flatten().min(),
            is_privileged,
        })
    }
}

/// Judges the sockets' buffers.
pub(super) fn judge(buffers: std::io::Result<Buffers>) -> Finding {
    const ID: &str = "udp-buffers";
    let requested = SOCKET_BUFFER_BYTES;
    let fix = format!("sysctl -w net.core.rmem_max={requested} net.core.wmem_max={requested}");
    let buffers = match buffers {
        Ok(buffers) => buffers,
        Err(error) => {
            let what = format!("The tunnel's UDP sockets cannot be opened: {error}.");
            return Finding::error(ID, what, "See socket(7) and bind(2) for this error.");
        }
    };
    let [granted, wanted] = [buffers.granted / 2, requested].map(|bytes| bytes >> 10);
    if granted >= wanted {
        let what = format!("The UDP sockets get the {wanted} KiB that they request.");
        return Finding::ok(ID, what);
    }
    if buffers.is_privileged {
        let what = format!(
            "The UDP sockets get {granted} KiB of the {wanted} KiB that they request, and lose datagrams when \
             many arrive at once."
        );
        let fix = format!("`{fix}`; in a container, on its host.");
        return Finding::warning(ID, what, fix);
    }
    let limit = buffers
        .limit
        .map_or("unknown".to_owned(), |it| it.to_string());
    let what = format!(
        "Without root, UDP sockets get {granted} KiB of {wanted} KiB: the limit is {limit} bytes, which only \
         CAP_NET_ADMIN exceeds."
    );
    Finding::note(
        ID,
        what,
        format!("If the daemon lacks that capability, too: `{fix}`."),
    )
}

/// Judges the queue of the tunnel's interface, in packets.
pub(super) fn judge_queue(interface: &str, length: u32) -> Finding {
    const ID: &str = "tx-queue";
    if length >= TX_QUEUE_LEN {
        let what = format!("The queue of {interface} holds {length} packets.");
        return Finding::ok(ID, what);
    }
    Finding::note(
        ID,
        format!("The queue of {interface} holds {length} packets, and bursts of more are lost."),
        format!("`ip link set {interface} txqueuelen {TX_QUEUE_LEN}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn severity(granted: usize, is_privileged: bool) -> Severity {
        let limit = Some(212_992);
        judge(Ok(Buffers {
            granted,
            limit,
            is_privileged,
        }))
        .severity
    }

    #[test]
    fn small_buffers_are_the_daemons_only_if_this_process_has_its_rights() {
        let whole = 2 * SOCKET_BUFFER_BYTES;
        assert_eq!(severity(whole, true), Severity::Ok);
        assert_eq!(severity(whole, false), Severity::Ok);
        assert_eq!(severity(whole / 2, true), Severity::Warning);
        assert_eq!(severity(whole / 2, false), Severity::Note);
        let refused = judge(Err(std::io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.severity, Severity::Error);
    }

    #[test]
    fn a_shorter_queue_is_told() {
        assert_eq!(judge_queue("wg0", TX_QUEUE_LEN).severity, Severity::Ok);
        assert_eq!(judge_queue("wg0", 500).severity, Severity::Note);
    }
}
