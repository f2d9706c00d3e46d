//! Connects the sender's side of a connection, [`Sending`], to smoltcp.
//!
//! smoltcp keeps the bytes and makes the segments, without a congestion window of its own: an acknowledgement that is
//! made here tells it after each one that was received how much it may send. To send again it is made to begin with
//! the first byte that was not acknowledged; of what it sends then, only the parts that are lost leave
//! ([`super::phy::Outgoing`]).

use smoltcp::{
    socket::tcp::State,
    time::{Duration, Instant},
};

use super::{
    flow::Inner,
    link::Link,
    phy::{Outgoing, Phy},
    sending::{Acknowledgement, Sending},
};
use convoy_packet::{
    packet::{Packet, ip_header_len},
    segment::{ACK, FIN, Options, Plain, RST, SYN, Segment, TCP_HEADER, Tuple, write_segment},
};

/// The longest segments of an end that names none, and the shortest that one may name, as smoltcp has them.
const DEFAULT_MSS: u32 = 536;
const LEAST_MSS: u32 = 48;
/// Beyond smoltcp's longest timer for sending again.
const FAR: Duration = Duration::from_secs(61);
/// A handshake that took longer has probably lost something.
const LONGEST_HANDSHAKE: i64 = 900_000;
/// MTUs that are tried after this many timeouts: routers may drop longer packets without a word.
const TRIED_MTUS: [(u32, usize); 2] = [(2, 1280), (4, 576)];

/// The other end as a receiver.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Once the connection is established.
    pub(super) sending: Option<Sending>,
    mss: u32,
    scale: u8,
    /// Bytes that the other end takes.
    pub(super) window: u32,
    /// The most that it has ever taken.
    widest: u32,
    /// The last window given to smoltcp, unscaled, if known.
    told: Option<u16>,
    /// The number of the next byte from the other end.
    expected: u32,
    /// The number of the end of its stream, if that has come.
    end: Option<u32>,
    /// When the handshake began.
    begun: i64,
}

impl Sender {
    /// The other end of a handshake that begins now, in microseconds.
    pub(super) fn new(begun: i64) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }

    /// Returns the number of the next byte from the other end.
    pub(super) fn expected(&self) -> u32 {
        self.expected
    }
}

impl Inner {
    /// Returns whether a segment lies within what may be received (RFC 9293 §3.10.7.4): only then its acknowledgement
    /// counts.
    ///
    /// The window is the room in the buffer, which may be more than was announced.
    pub(super) fn is_acceptable(&mut self, segment: &Segment) -> bool {
        let expected = self.sender.expected;
        let socket = self.socket();
        let room = (socket.recv_capacity() - socket.recv_queue()) as u32;
        let length = segment.end().wrapping_sub(segment.sequence);
        let first = segment.sequence.wrapping_sub(expected);
        match length {
            0 => first <= room,
            _ => first < room || segment.end().wrapping_sub(expected).wrapping_sub(1) < room,
        }
    }

    /// Returns whether a segment may be forged, or come from an end that has forgotten the connection: if that is
    /// established, the segment is to be challenged (RFC 5961 §3, §4, §5), and it does nothing else.
    pub(super) fn is_doubtful(&mut self, segment: &Segment) -> bool {
        match self.state() {
            // The next SYN-ACK has an honest end repeat it with the number expected.
            State::SynReceived => return segment.has(RST) && self.is_guess(segment),
            State::Closed | State::Listen | State::SynSent => return false,
            _ => {}
        }
        if segment.has(RST) && !segment.has(SYN) {
            return self.is_guess(segment);
        }
        // To those without data two ends would answer each other for ever.
        let is_data = segment.end() != segment.sequence;
        segment.has(SYN) || (is_data && segment.has(ACK) && !self.is_plausible(segment))
    }

    /// Returns whether a segment acknowledges something that the other end can have received when it sent that (RFC
    /// 5961 §5).
    fn is_plausible(&self, segment: &Segment) -> bool {
        let Some(sending) = &self.sender.sending else {
            return false;
        };
        let oldest = sending.first().wrapping_sub(self.sender.widest);
        let range = self.highest.wrapping_sub(oldest);
        segment.has(ACK) && segment.acknowledged.wrapping_sub(oldest) <= range
    }

    /// Returns whether a reset lies within the window but has not the number expected, so that it may be a guess: the
    /// other end must repeat it with that number (RFC 5961 §3).
    fn is_guess(&mut self, reset: &Segment) -> bool {
        let ahead = reset.sequence.wrapping_sub(self.sender.expected);
        let socket = self.socket();
        let room = socket.recv_capacity() - socket.recv_queue();
        (1..room as u32).contains(&ahead)
    }

    /// Returns whether a segment acknowledges less than another one that has overtaken it, and carries data or an end.
    pub(super) fn is_overtaken(&self, segment: &Segment) -> bool {
        let is_old =
            |sending: &Sending| (segment.acknowledged.wrapping_sub(sending.first()) as i32) < 0;
        let is_data = segment.flags & (SYN | RST) == 0 && segment.end() != segment.sequence;
        is_data && self.is_plausible(segment) && self.sender.sending.as_ref().is_some_and(is_old)
    }

    /// Returns whether a segment carries bytes that lie behind the end of the stream: they are no part of it.
    pub(super) fn is_behind_end(&self, segment: &Segment) -> bool {
        let end = match self.state() {
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait => {
                Some(self.sender.expected)
            }
            _ => self.sender.end,
        };
        let behind = segment.sequence.wrapping_add(segment.payload_len as u32);
        let is_behind = |end: u32| (behind.wrapping_sub(end) as i32) > 0;
        // The bytes of a reset are an explanation (RFC 9293 §3.5.3).
        segment.payload_len > 0 && !segment.has(RST) && end.is_some_and(is_behind)
    }

    /// Returns whether the other end's stream may go on.
    fn is_receiving(&self) -> bool {
        use State::{Established, FinWait1, FinWait2};
        matches!(self.state(), Established | FinWait1 | FinWait2)
    }

    /// Notes the end of the stream if smoltcp has not taken it with its segment.
    pub(super) fn note_end(&mut self, segment: &Segment, is_acceptable: bool) {
        let is_end = segment.flags & (SYN | RST | FIN) == FIN && self.is_plausible(segment);
        if is_acceptable && is_end && self.is_receiving() {
            let end = segment.end().wrapping_sub(1);
            self.sender.end.get_or_insert(end);
        }
    }

    /// Hands the end of the stream over once all before it has come.
    ///
    /// smoltcp 0.14 takes no end that has overtaken data, and none behind data that it has already.
    pub(super) fn take_end(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        if self.sender.end != Some(self.sender.expected) || !self.is_receiving() {
            return;
        }
        self.hand(now, FIN | ACK, self.window(), out);
        if !self.is_receiving() {
            self.sender.expected = self.sender.expected.wrapping_add(1);
        }
    }

    /// Notes what smoltcp has taken of a segment: the state, and the bytes to be read, that it had before.
    pub(super) fn note_received(
        &mut self,
        packet: &Packet<'_>,
        segment: &Segment,
        before: State,
        queued: usize,
    ) {
        use State::{
            CloseWait, Closing, Established, FinWait1, FinWait2, Listen, SynReceived, SynSent,
            TimeWait,
        };
        let after = self.state();
        match (before, after) {
            (Listen, SynReceived) | (SynSent, SynReceived | Established) => {
                let options = Options::parse(packet.payload(), segment.header_len);
                let mss = options.mss.filter(|mss| *mss > 0);
                self.sender.mss = mss.map_or(DEFAULT_MSS, |mss| LEAST_MSS.max(mss.into()));
                self.sender.scale = options.scale.unwrap_or(0);
                self.sender.expected = segment.sequence.wrapping_add(1);
                return;
            }
            (_, State::Closed | Listen) => return,
            _ => {}
        }
        let is_end = matches!(
            (before, after),
            (Established | SynReceived, CloseWait)
                | (FinWait1, Closing | TimeWait)
                | (FinWait2, TimeWait)
        );
        let received = self.socket().recv_queue().saturating_sub(queued) as u32;
        let expected = self.sender.expected.wrapping_add(received);
        self.sender.expected = expected.wrapping_add(is_end.into());
    }

    /// Learns from a segment that smoltcp has taken what has arrived at the other end.
    pub(super) fn heed(&mut self, now: Instant, packet: &Packet<'_>, segment: &Segment) {
        let is_established = !matches!(
            self.state(),
            State::Closed | State::Listen | State::SynSent | State::SynReceived
        );
        if !is_established || !segment.has(ACK) || segment.has(RST) {
            return;
        }
        let (micros, number) = (now.total_micros(), segment.acknowledged);
        let mss = self.mss();
        let sender = &mut self.sender;
        let begun = sender.begun;
        let sending = sender.sending.get_or_insert_with(|| {
            let round_trip = Some(micros - begun).filter(|it| *it < LONGEST_HANDSHAKE);
            Sending::new(mss, number, micros, round_trip)
        });
        if (number.wrapping_sub(sending.first()) as i32) < 0 {
            return;
        }
        // Not scaled in the first one.
        let scale = if segment.has(SYN) { 0 } else { sender.scale };
        let window = u32::from(segment.window) << scale;
        let is_pure =
            segment.payload_len == 0 && segment.flags & (SYN | FIN) == 0 && window == sender.window;
        sender.window = window;
        sender.widest = sender.widest.max(window);
        sender.told = (scale == sender.scale).then_some(segment.window);
        let options = Options::parse(packet.payload(), segment.header_len);
        let acknowledgement = Acknowledgement {
            number,
            blocks: options.blocks(),
            is_pure,
        };
        sending.acknowledge(micros, acknowledgement);
    }

    /// Tells smoltcp how much may be sent.
    pub(super) fn limit(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        let Some(window) = self.allowed() else {
            return;
        };
        if self.sender.told != Some(window) {
            self.tell(now, window, out);
        }
    }

    /// Makes smoltcp retransmit its first segment in any state, by duplicates of the last acknowledgement.
    fn nudge(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        let Some(window) = self.allowed() else {
            return;
        };
        self.tell(now, window ^ 1, out);
        for _ in 0..4 {
            self.tell(now, window, out);
        }
    }

    /// The window that smoltcp is to have, as it is written, where it sends data.
    fn allowed(&self) -> Option<u16> {
        let sending = self.sender.sending.as_ref().filter(|_| self.is_sending())?;
        let (scale, theirs) = (self.sender.scale, self.sender.window);
        let ours = sending.window();
        if ours >= theirs {
            return Some((theirs >> scale) as u16);
        }
        // A unit that is not small compared with a segment is rounded up, so that there is progress.
        let is_coarse = 8 << scale > self.mss();
        let units = if is_coarse {
            ours.div_ceil(1 << scale)
        } else {
            ours >> scale
        };
        Some(units.min(theirs >> scale) as u16)
    }

    /// The window that smoltcp is to have in any state.
    pub(super) fn window(&self) -> u16 {
        let theirs = (self.sender.window >> self.sender.scale) as u16;
        self.allowed().unwrap_or(theirs)
    }

    /// Gives smoltcp an acknowledgement of what has been acknowledged, with this window.
    fn tell(&mut self, now: Instant, window: u16, out: &mut Outgoing<'_>) {
        self.hand(now, ACK, window, out);
    }

    /// Gives smoltcp a segment without payload that acknowledges what has been acknowledged.
    pub(super) fn hand(&mut self, now: Instant, flags: u8, window: u16, out: &mut Outgoing<'_>) {
        let Some(sending) = &self.sender.sending else {
            return;
        };
        let plain = Plain {
            flags,
            sequence: self.sender.expected,
            acknowledged: sending.first(),
            window,
            payload: &[],
        };
        self.sender.told = Some(window);
        self.hand_plain(now, plain, out);
    }

    /// Makes smoltcp acknowledge all that was received, by a byte that it has received before.
    ///
    /// Only smoltcp knows the window, and discards what lies behind the last one that it has announced.
    pub(super) fn acknowledge(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        let Some(sending) = &self.sender.sending else {
            return;
        };
        let plain = Plain {
            flags: ACK,
            sequence: self.sender.expected.wrapping_sub(1),
            acknowledged: sending.first(),
            window: self.window(),
            payload: &[0],
        };
        self.hand_plain(now, plain, out);
    }

    fn hand_plain(&mut self, now: Instant, plain: Plain<'_>, out: &mut Outgoing<'_>) {
        let ends = Tuple {
            local: self.tuple.remote,
            remote: self.tuple.local,
        };
        let mut packet = [0; 61];
        let length = write_segment(&mut packet, ends, plain);
        self.take(now, &packet[..length], out);
    }

    /// Does what the sender's timers demand; whether that changes what may be sent.
    pub(super) fn expire(&mut self, link: &Link, now: Instant) -> bool {
        let has_more = self.socket().send_queue() > 0;
        let micros = now.total_micros();
        let Some(sending) = &mut self.sender.sending else {
            return false;
        };
        if !sending.expire(micros) {
            return has_more && sending.rest(micros);
        }
        let timeouts = sending.timeouts();
        let tried = TRIED_MTUS.iter().find(|(after, _)| *after == timeouts);
        if let Some((_, mtu)) = tried.filter(|_| has_more)
            && self.limit_mtu(link, *mtu)
        {
            link.counters.path_mtu_changes.add(1);
        }
        true
    }

    /// Returns whether something that is lost may be sent again now.
    pub(super) fn wants_to_resend(&self) -> bool {
        let sending = self.sender.sending.as_ref();
        sending.is_some_and(Sending::wants_to_resend)
    }

    /// Tells smoltcp what a timer has changed.
    pub(super) fn prepare(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        self.limit(now, out);
        let timeouts = self.sender.sending.as_ref().map_or(0, Sending::timeouts);
        if timeouts > 1 {
            // Without smoltcp's timer, as after a closed window, only this has an effect.
            self.nudge(now, out);
        }
    }

    /// Rewinds smoltcp to the first unacknowledged byte, by letting its retransmission timer expire.
    ///
    /// Everything that it has to send at once was sent, so that there is no other timer.
    pub(super) fn rewind(&mut self, now: Instant, out: &mut Outgoing<'_>) {
        let timeout = self.socket().timeout();
        self.socket().set_timeout(None);
        let mut phy = Phy {
            received: None,
            out,
            mtu: self.mtu,
            is_closed: true,
        };
        let Self {
            interface, sockets, ..
        } = self;
        interface.poll_egress(now + FAR, &mut phy, sockets);
        self.socket().set_timeout(timeout);
    }

    /// The longest payload of a segment.
    pub(super) fn mss(&self) -> u32 {
        let longest = self.mtu - ip_header_len(self.tuple.local.ip()) - TCP_HEADER;
        self.sender.mss.min(longest as u32)
    }
}
