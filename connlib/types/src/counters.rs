//! The counters of the data path: plain integers that a snapshot copies.

/// Declares the drop reasons once: the enum, its names and its size.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Reason why a packet or a datagram was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason { $($(#[$doc])* $variant,)* }

        impl DropReason {
            /// Every reason, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name under which `convoy stats` shows the reason.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

drop_reasons! {
    /// Outbound: neither IPv4 nor IPv6, shorter than its header says, or with a wrong virtio header.
    OutboundMalformed = "outbound_malformed",
    /// Outbound: no peer's allowed IPs contain the destination.
    OutboundNoRoute = "outbound_no_route",
    /// Outbound: a datagram of this tunnel itself: the route to the peer's endpoint leads back into the interface.
    OutboundLoop = "outbound_loop",
    /// Outbound: the peer has no endpoint yet.
    OutboundNoEndpoint = "outbound_no_endpoint",
    /// Outbound: the packets held for handshakes exceeded their bound; the oldest of a peer was dropped.
    OutboundHeldOverflow = "outbound_held_overflow",
    /// Outbound: the handshake was given up after 20 initiations, about 100 seconds.
    OutboundHandshakeTimeout = "outbound_handshake_timeout",
    /// Outbound: the link was down, or was set down; control datagrams count as well.
    OutboundLinkDown = "outbound_link_down",
    /// Outbound: the peer was removed while packets were held for it.
    OutboundPeerRemoved = "outbound_peer_removed",
    /// Outbound: the kernel refused the datagram (unreachable, not permitted, …).
    OutboundSendFailed = "outbound_send_failed",
    /// Outbound: too long for the path, even as a single datagram.
    OutboundTooBig = "outbound_too_big",
    /// Outbound: the kernel lacked buffers, even after three retries.
    OutboundNoBuffers = "outbound_no_buffers",
    /// Outbound: a bounded queue was full (control datagrams, or the GSO queue).
    OutboundQueueFull = "outbound_queue_full",
    /// Outbound: a cookie reply, as very many waited.
    OutboundCookieLost = "outbound_cookie_lost",
    /// Outbound: the peer is reached through a TURN server that has no channel to it (yet), or whose queue is full, or
    /// whose stream has ended.
    OutboundRelayNotReady = "outbound_relay_not_ready",
    /// Inbound: through a channel of a TURN server that leads to no peer.
    InboundRelayUnknownChannel = "inbound_relay_unknown_channel",
    /// Inbound: from a TURN server's address, but neither an answer of the server nor a relayed datagram.
    InboundRelayStranger = "inbound_relay_stranger",
    /// Inbound: through the stream of a TURN server that has been removed, or that is not needed any longer.
    InboundRelayGone = "inbound_relay_gone",
    /// Outbound: the first hop's interface has no address of the second hop's family.
    OutboundViaNoAddress = "outbound_via_no_address",
    /// Inbound: not a WireGuard message, by its type or length.
    InboundNotWireGuard = "inbound_not_wireguard",
    /// Inbound: a handshake message whose MAC1 is wrong.
    InboundBadMac = "inbound_bad_mac",
    /// Inbound: sent from UDP port 0, to which no answer can be sent.
    InboundPortZero = "inbound_port_zero",
    /// Inbound: a handshake message under load, either without a valid MAC2 (which needs a cookie) or above
    /// the rate limit of its address.
    InboundUnderLoad = "inbound_under_load",
    /// Inbound: an initiation with a public key that belongs to no peer.
    InboundUnknownPeer = "inbound_unknown_peer",
    /// Inbound: a handshake message or cookie reply that is a replay or not authentic.
    InboundBadHandshake = "inbound_bad_handshake",
    /// Inbound: an initiation less than 20 ms after the peer's last accepted one.
    InboundTooSoon = "inbound_too_soon",
    /// Inbound: a receiver index that belongs to no session.
    InboundUnknownSession = "inbound_unknown_session",
    /// Inbound: a session beyond Reject-After-Time or Reject-After-Messages.
    InboundExpiredSession = "inbound_expired_session",
    /// Inbound: the AEAD tag does not match.
    InboundBadTag = "inbound_bad_tag",
    /// Inbound: the counter was seen before.
    InboundReplay = "inbound_replay",
    /// Inbound: a counter behind the replay window: more than 8,128 below the newest.
    InboundBehindWindow = "inbound_behind_window",
    /// Inbound: the decrypted payload is not an IP packet.
    InboundMalformed = "inbound_malformed",
    /// Inbound: the inner source address is not among the peer's allowed IPs.
    InboundForeignSource = "inbound_foreign_source",
    /// Inbound: a packet from the first hop that is no datagram for the tunnel inside.
    InboundViaForeign = "inbound_via_foreign",
    /// Inbound: a fragment of a datagram from the first hop that does not fit the others, or has come before.
    InboundViaFragment = "inbound_via_fragment",
    /// Inbound: a fragment of a datagram from the first hop, as others did not come within three seconds, or very many
    /// datagrams lacked some.
    InboundViaIncomplete = "inbound_via_incomplete",
    /// Inbound: a peer's message about paths from an address that is never probed, or one of too many to answer.
    InboundPathsRefused = "inbound_paths_refused",
    /// Inbound: received before the link was set down, but handled afterwards.
    InboundLinkDown = "inbound_link_down",
    /// Inbound: no key to handle a handshake message: the device has no private key, or the peer's public key
    /// is of low order.
    InboundNoKey = "inbound_no_key",
    /// Inbound: the TUN write failed (link down, …).
    InboundWriteFailed = "inbound_write_failed",
    /// Inbound: an ICMP error of our own for which the TUN writer had no room, or which waited when the link
    /// was set down.
    InboundReplyLost = "inbound_reply_lost",
}

/// Counts by [`DropReason`].
#[derive(Clone, Debug)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts `n` drops for `reason`.
    pub fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize] += n;
    }

    /// The count for `reason`.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
}

/// Counts observations of each value from 0 to 64; larger values count as 64.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// `counts[v]`: the number of observations of `v`.
    pub counts: [u64; 65],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 65] }
    }
}

impl Histogram {
    /// Counts one observation of `value`.
    pub fn record(&mut self, value: usize) {
        self.counts[value.min(64)] += 1;
    }
}

/// All counters of the data path, summed over all peers.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Packets and datagrams dropped, by reason.
    pub drops: Drops,
    /// Packets in one TUN read: more than one if the read was a super-packet.
    pub packets_per_read: Histogram,
    /// Packets in one batch from the TUN reader.
    pub packets_per_batch: Histogram,
    /// Datagrams in one successful send.
    pub segments_per_send: Histogram,
    /// Datagrams in one received buffer.
    pub segments_per_receive: Histogram,
    /// Packets in one TUN write: more than one if the write was coalesced.
    pub packets_per_write: Histogram,
    /// CPU time of a tick of the event loop, in units of 100 µs, rounded down.
    pub cpu_time_per_tick: Histogram,
    /// Ticks of the event loop.
    pub ticks: u64,
    /// Data-path system calls by name: `tun_read`, `tun_write`, `udp_send`, `udp_receive`, …
    pub syscalls: Vec<(&'static str, u64)>,
    /// Refusals, retries and other events by name: `gso_refused_batches`, `udp_kernel_drops`, …
    pub events: Vec<(&'static str, u64)>,
    /// Present state as text by name: `gso`, `udp_gro`, `tun_offload_tcp`, …
    pub state: Vec<(&'static str, String)>,
    /// Bytes of outbound packets queued for sending (before padding and encryption).
    pub outbound_bytes: u64,
    /// Outbound packets queued for sending.
    pub outbound_packets: u64,
    /// Bytes of inbound packets passed to the TUN writer (after decryption, without padding).
    pub inbound_bytes: u64,
    /// Inbound packets passed to the TUN writer.
    pub inbound_packets: u64,
    /// Inbound packets whose datagrams were marked for congestion (ECN CE), and that tell their receiver.
    pub congestion_told: u64,
    /// Packets of such datagrams that are not ECN-capable: they passed unchanged.
    pub congestion_untold: u64,
    /// Cookie replies queued for sending.
    pub cookies_sent: u64,
    /// Handshakes completed, in either role.
    pub handshakes: u64,
}
