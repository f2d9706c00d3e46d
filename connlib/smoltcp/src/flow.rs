//! A connection: one socket of smoltcp with an interface of its own.

use std::{
    fmt,
    io::{self, ErrorKind},
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use smoltcp::{
    iface::{Config, Interface, PollResult, SocketHandle, SocketSet},
    socket::tcp::{CongestionControl, Socket, SocketBuffer, State},
    time::{Duration, Instant},
    wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, IpListenEndpoint},
};

use super::{
    link::Link,
    memory::{Memory, Sizes},
    phy::{Again, Outgoing, Phy, announced},
    room::with_room,
    sender::Sender,
    sending::Sending,
};
use convoy_packet::{
    counters::Dropped,
    packet::Packet,
    segment::{ACK, Plain, Segment, Tuple},
};

/// Time limit for an answer to our SYN.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A silent connection is probed this often.
const KEEPALIVE: Duration = Duration::from_secs(120);
/// Time limit for an answer to such probes, as the other end may be asleep (RFC 5382, REQ-5: at least 2 h 4 min).
const SLEEP_LIMIT: Duration = Duration::from_secs(7_500);
/// Time limit for an acknowledgement of anything that was sent.
const SILENCE_LIMIT: Duration = Duration::from_secs(480);
/// How long the last bytes of a connection may take that nobody holds any more, in microseconds.
const ORPHAN_LIMIT: i64 = 60_000_000;
/// How long a small segment's acknowledgement waits for an answer to travel with.
const ACK_DELAY: Duration = Duration::from_millis(10);
/// Packets that a connection sends in one turn; its buffer and its window end it before.
const MOST_PACKETS: usize = 4096;
/// The shortest MTU that a router may demand (RFC 791; IPv6 never needs less than 1,280).
const LEAST_MTU: usize = 576;

/// A connection, as the table, the stack's thread and a stream hold it.
pub(super) struct Flow {
    pub(super) tuple: Tuple,
    /// The number of the peer at the other end.
    pub(super) peer: u32,
    pub(super) sizes: Sizes,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) tuple: Tuple,
    pub(super) sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) interface: Interface,
    /// Used by the socket: the fields are dropped in their order.
    _memory: Memory,
    pub(super) mtu: usize,
    /// Its place in the table; none once it has left that, and then it sends nothing.
    pub(super) slot: Option<usize>,
    /// When the table is to wake it.
    pub(super) deadline: Option<i64>,
    /// Whether a listener waits for it to be established.
    pub(super) is_awaited: bool,
    /// Whether nothing more is written.
    is_shut: bool,
    /// Why it has ended early.
    pub(super) error: Option<ErrorKind>,
    /// When it is given up, once nobody holds it.
    pub(super) expires: Option<i64>,
    /// Whether it is in the device's list of those that have more to send.
    pub(super) is_waiting: bool,
    /// Whether it was refused room in its last turn.
    pub(super) is_refused: bool,
    /// Whether it is in the list of those that have received something in this batch.
    pub(super) is_touched: bool,
    /// Where its last segment ended, and what that acknowledged.
    last: (u32, u32),
    /// Where the other end's last segment ended, once both ends have closed.
    end: Option<u32>,
    /// The highest sequence number that was sent, and that was acknowledged.
    pub(super) highest: u32,
    acknowledged: u32,
    /// The last acknowledgement number told to the other end, and smoltcp's window.
    told: (u32, u16),
    /// When a segment was last received.
    heard: Instant,
    /// Since when something awaits the other end's acknowledgement, or its window.
    owed: Option<Instant>,
    pub(super) sender: Sender,
}

/// Packets that were sent in one turn.
struct Sent {
    last: Option<(u32, u32)>,
    highest: Option<u32>,
    told: Option<(u32, u16)>,
    is_refused: bool,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tuple.fmt(f)
    }
}

/// Memory that a connection takes besides the pages of its buffers that were used, which are given back when it ends.
const _: () = assert!(size_of::<Flow>() + size_of::<Socket<'static>>() < 2560);

impl Flow {
    /// A connection that is to be begun by [`Inner::connect`], or else by the other end's SYN.
    pub(super) fn new(link: &Link, tuple: Tuple, sizes: Sizes) -> io::Result<Self> {
        let mut memory = Memory::new(sizes)?;
        // SAFETY: called once; the socket is dropped before the memory, and lends its buffers to nobody.
        let (receive, send) = unsafe { memory.buffers() };
        let mut socket = Socket::new(SocketBuffer::new(receive), SocketBuffer::new(send));
        // The window of `sender` bounds what is in flight.
        socket.set_congestion_control(CongestionControl::None);
        // The sender has decided already what waits for more.
        socket.set_nagle_enabled(false);
        socket.set_timeout(Some(CONNECT_LIMIT));
        // Set later, it would have a probe sent at once.
        socket.set_keep_alive(Some(KEEPALIVE));
        let local = IpAddress::from(tuple.local.ip());
        let endpoint = IpListenEndpoint::from((local, tuple.local.port()));
        socket.listen(endpoint).map_err(io::Error::other)?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let mtu = link.mtu();
        let inner = Inner {
            tuple,
            sockets,
            handle,
            interface: interface(link, tuple, mtu),
            _memory: memory,
            mtu,
            slot: None,
            deadline: None,
            is_awaited: false,
            is_shut: false,
            error: None,
            expires: None,
            is_waiting: false,
            is_refused: false,
            is_touched: false,
            last: (0, 0),
            end: None,
            highest: 0,
            acknowledged: 0,
            told: (0, 0),
            heard: link.now(),
            owed: None,
            sender: Sender::new(link.now().total_micros()),
        };
        Ok(Self {
            tuple,
            peer: link.peer_of(tuple.remote.ip()),
            sizes,
            inner: Mutex::new(inner),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An interface with the connection's own address alone.
fn interface(link: &Link, tuple: Tuple, mtu: usize) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = rand::random();
    with_outgoing(link, None, |out| {
        let mut phy = Phy {
            received: None,
            out,
            mtu,
            is_closed: false,
        };
        let mut interface = Interface::new(config, &mut phy, link.now());
        interface.update_ip_addrs(|addresses| {
            let address = IpAddress::from(tuple.local.ip());
            let bits = if tuple.local.is_ipv4() { 32 } else { 128 };
            // There is room for one.
            let _ = addresses.push(IpCidr::new(address, bits));
        });
        interface
    })
}

fn with_outgoing<R>(
    link: &Link,
    again: Option<Again<'_>>,
    make: impl FnOnce(&mut Outgoing<'_>) -> R,
) -> R {
    with_room(|room| {
        let mut out = Outgoing::new(&link.device, &link.counters, room, again);
        let result = make(&mut out);
        out.flush();
        result
    })
}

/// Returns whether a connection is not established yet.
fn is_beginning(state: State) -> bool {
    matches!(state, State::Listen | State::SynSent | State::SynReceived)
}

fn acknowledges_beyond(segment: &Segment, number: u32) -> bool {
    segment.has(ACK) && (segment.acknowledged.wrapping_sub(number) as i32) > 0
}

impl Inner {
    pub(super) fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub(super) fn state(&self) -> State {
        self.sockets.get::<Socket<'static>>(self.handle).state()
    }

    /// Begins the connection from this side; the next turn sends the SYN.
    pub(super) fn connect(&mut self, tuple: Tuple) -> io::Result<()> {
        let socket = self.sockets.get_mut::<Socket<'static>>(self.handle);
        socket.close();
        let [remote, local] = [tuple.remote, tuple.local].map(IpEndpoint::from);
        let begun = socket.connect(self.interface.context(), remote, local);
        begun.map_err(|_| ErrorKind::AddrNotAvailable.into())
    }

    /// Takes a segment. What it makes possible to send waits for [`Self::send`].
    pub(super) fn receive(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        segment: &Segment,
    ) -> Result<(), Dropped> {
        let before = self.state();
        let is_beginning = is_beginning(before);
        self.check_acknowledgement(segment)?;
        // Several segments at once are acknowledged at once.
        let is_several = segment.payload_len > self.mtu;
        let delay = if is_several {
            Duration::ZERO
        } else {
            ACK_DELAY
        };
        self.socket().set_ack_delay(Some(delay));
        let now = link.now();
        self.heard = now;
        let is_acceptable = is_beginning || self.is_acceptable(segment);
        let is_behind_end = is_acceptable && self.is_behind_end(segment);
        let queued = self.socket().recv_queue();
        let renewed = self.is_overtaken(segment).then(|| self.renew(packet));
        with_outgoing(link, None, |out| {
            if !is_behind_end {
                self.take(now, renewed.as_deref().unwrap_or(packet.bytes), out);
                self.note_received(packet, segment, before, queued);
            }
            if is_acceptable {
                self.heed(now, packet, segment);
            }
            if is_behind_end {
                self.hand(now, ACK, self.window(), out);
                self.acknowledge(now, out);
            } else {
                self.note_end(segment, is_acceptable && !is_beginning);
                self.take_end(now, out);
            }
            self.limit(now, out);
            self.note_answers(out);
        });
        let is_newer = is_acceptable && acknowledges_beyond(segment, self.acknowledged);
        if (is_beginning && segment.has(ACK)) || is_newer {
            self.acknowledged = segment.acknowledged;
        }
        match (before, self.state()) {
            (State::Closed | State::LastAck, State::Closed) => {}
            (State::SynSent, State::Closed) => self.error = Some(ErrorKind::ConnectionRefused),
            (_, State::Closed) => {
                link.counters.resets.add(1);
                self.error = Some(ErrorKind::ConnectionReset);
            }
            (State::SynSent | State::SynReceived, State::Established | State::CloseWait) => {
                self.socket().set_timeout(Some(SLEEP_LIMIT));
            }
            (_, State::TimeWait) => self.end = Some(self.sender.expected()),
            _ => {}
        }
        Ok(())
    }

    /// Answers a doubtful segment with an acknowledgement of all that was received.
    pub(super) fn challenge(&mut self, link: &Link, segment: &Segment) -> Result<(), Dropped> {
        with_outgoing(link, None, |out| {
            self.acknowledge(link.now(), out);
            self.note_answers(out);
        });
        self.check_acknowledgement(segment)
    }

    /// Fails if a segment acknowledges what was not sent: smoltcp would take what waits to be sent for acknowledged.
    fn check_acknowledgement(&self, segment: &Segment) -> Result<(), Dropped> {
        match !is_beginning(self.state()) && acknowledges_beyond(segment, self.highest) {
            true => Err(Dropped::UnsentAcknowledged),
            false => Ok(()),
        }
    }

    fn note_answers(&mut self, out: &mut Outgoing<'_>) {
        out.flush();
        self.last = out.last.unwrap_or(self.last);
        self.told = out.told.unwrap_or(self.told);
    }

    /// Returns whether both ends have closed, and this one has acknowledged the end of the other.
    pub(super) fn has_acknowledged_end(&self) -> bool {
        self.state() == State::TimeWait && self.end == Some(self.last.1)
    }

    /// Returns the last acknowledgement that was sent.
    pub(super) fn last_acknowledgement(&self) -> Plain<'static> {
        Plain {
            flags: ACK,
            sequence: self.last.0,
            acknowledged: self.last.1,
            window: announced(self.told.1),
            payload: &[],
        }
    }

    pub(super) fn take(&mut self, now: Instant, packet: &[u8], out: &mut Outgoing<'_>) {
        let mut phy = Phy {
            received: Some(packet),
            out,
            mtu: self.mtu,
            is_closed: false,
        };
        self.interface
            .poll_ingress_single(now, &mut phy, &mut self.sockets);
    }

    /// Makes a packet acknowledge what others before it have acknowledged: smoltcp would take it for an old one.
    fn renew(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut renewed = packet.bytes.to_vec();
        let at = packet.payload_at + 8;
        renewed[at..at + 4].copy_from_slice(&self.acknowledged.to_be_bytes());
        renewed
    }

    /// Sends what can be sent.
    pub(super) fn send(&mut self, link: &Link) {
        if self.slot.is_none() {
            return;
        }
        if self.is_shut {
            self.shut();
        }
        let (now, before) = (link.now(), self.state());
        self.owed = self.is_owed().then(|| self.owed.unwrap_or(now));
        if self.is_silent(now) {
            self.socket().abort();
        }
        if self.expire(link, now) {
            with_outgoing(link, None, |out| self.prepare(now, out));
        }
        self.emit(link, now);
        if self.wants_to_resend() && !self.is_refused {
            with_outgoing(link, None, |out| self.rewind(now, out));
            self.emit(link, now);
        }
        if before != State::Closed && self.state() == State::Closed {
            link.counters.timeouts.add(1);
            self.error = Some(ErrorKind::TimedOut);
        }
    }

    /// Sends what smoltcp has to send now.
    fn emit(&mut self, link: &Link, now: Instant) {
        let before = self.state();
        let is_open = self.sender.window > 0 || !self.is_sending();
        let mtu = self.mtu;
        let again = self.sender.sending.as_mut().map(|sending| Again {
            sending,
            now: now.total_micros(),
            told: self.told,
        });
        let (interface, sockets) = (&mut self.interface, &mut self.sockets);
        let sent = with_outgoing(link, again, |out| {
            let mut phy = Phy {
                received: None,
                out,
                mtu,
                is_closed: false,
            };
            for _ in 0..MOST_PACKETS {
                let sent = interface.poll_egress(now, &mut phy, sockets);
                if sent == PollResult::None {
                    break;
                }
            }
            out.flush();
            Sent {
                last: out.last,
                highest: out.highest,
                told: out.told,
                is_refused: out.is_refused,
            }
        });
        self.note_sent(now, before, is_open, &sent);
    }

    fn note_sent(&mut self, now: Instant, before: State, is_open: bool, sent: &Sent) {
        self.is_refused = sent.is_refused;
        self.told = sent.told.unwrap_or(self.told);
        let (Some((_, acknowledged)), Some(highest)) = (sent.last, sent.highest) else {
            return;
        };
        let is_first = before == State::SynSent || before == State::SynReceived;
        if is_first || (highest.wrapping_sub(self.highest) as i32) > 0 {
            self.highest = highest;
        }
        self.last = (self.highest, acknowledged);
        // A byte that probes a closed window may be discarded there.
        if let Some(sending) = self.sender.sending.as_mut().filter(|_| is_open) {
            sending.sent(now.total_micros(), highest);
        }
    }

    /// Returns whether the other end has been silent for too long. smoltcp does not know, as it hears what is made
    /// here.
    fn is_silent(&self, now: Instant) -> bool {
        let (since, limit) = match self.owed {
            Some(since) => (self.heard.max(since), SILENCE_LIMIT),
            None => (self.heard, SLEEP_LIMIT),
        };
        self.sender.sending.is_some() && now - since >= limit
    }

    /// Returns whether the other end has not taken all that was written, or not acknowledged the end.
    fn is_owed(&mut self) -> bool {
        let is_ending = matches!(
            self.state(),
            State::FinWait1 | State::Closing | State::LastAck
        );
        is_ending || self.socket().send_queue() > 0
    }

    /// Returns whether data may be sent.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.state(), State::Established | State::CloseWait)
    }

    /// Returns when to send again, even if nothing is received.
    pub(super) fn next_turn(&mut self, now: Instant) -> Option<i64> {
        let next = self.interface.poll_at(now, &self.sockets);
        let next = next.map(|it| it.total_micros());
        let again = self.sender.sending.as_ref().and_then(Sending::deadline);
        next.into_iter().chain(again).chain(self.expires).min()
    }

    /// Returns whether nothing is left to be sent or received.
    pub(super) fn is_over(&self) -> bool {
        let socket = self.sockets.get::<Socket<'static>>(self.handle);
        match socket.state() {
            State::Closed => socket.remote_endpoint().is_none(),
            State::Listen => true,
            _ => false,
        }
    }

    /// Ends this direction once all that was written has been acknowledged.
    ///
    /// In LAST-ACK, smoltcp 0.14 overlooks that the other end's window opens, so that the rest would never be sent.
    pub(super) fn shut(&mut self) {
        self.is_shut = true;
        let socket = self.socket();
        if socket.send_queue() == 0 {
            socket.close();
        }
    }

    /// Returns whether this direction has ended, or is about to.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Nobody holds it any more: what was written is still delivered.
    pub(super) fn orphan(&mut self, now: Instant) {
        self.shut();
        self.expires = Some(now.total_micros() + ORPHAN_LIMIT);
    }

    /// Resets an orphan that has received something which nobody will read, or whose time is up.
    pub(super) fn judge_orphan(&mut self, now: Instant) {
        if let Some(expires) = self.expires
            && (expires <= now.total_micros() || self.socket().recv_queue() > 0)
        {
            self.socket().abort();
        }
    }

    /// Ends it without a word to the other end.
    pub(super) fn fail(&mut self, error: ErrorKind) {
        self.error = Some(error);
        self.socket().abort();
    }

    /// Returns whether a segment that began here may still be under way.
    pub(super) fn has_in_flight(&self, sequence: u32) -> bool {
        let behind = self.highest.wrapping_sub(sequence);
        (1..=self.highest.wrapping_sub(self.acknowledged)).contains(&behind)
            || self.state() == State::SynSent && behind == 1
    }

    /// Makes its segments shorter, as a router wants; whether they are now.
    pub(super) fn limit_mtu(&mut self, link: &Link, mtu: usize) -> bool {
        let least = if self.tuple.local.is_ipv4() {
            LEAST_MTU
        } else {
            1280
        };
        let mtu = mtu.max(least);
        let is_shorter = mtu < self.mtu;
        if is_shorter {
            self.mtu = mtu;
            self.interface = interface(link, self.tuple, mtu);
            let mss = self.mss();
            if let Some(sending) = &mut self.sender.sending {
                sending.shorten(mss);
            }
        }
        is_shorter
    }

    pub(super) fn wake_when_sent(&mut self, waker: &Waker) {
        self.socket().register_send_waker(waker);
    }
}
