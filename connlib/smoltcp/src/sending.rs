//! The sender's side of a connection, pure: what has arrived, what is lost, and how much may be in flight.
//!
//! 1. [`Sending::sent`] for what was sent for the first time.
//! 2. [`Sending::acknowledge`] for each acceptable acknowledgement, [`Sending::expire`] at [`Sending::deadline`].
//! 3. If [`Sending::wants_to_resend`], [`Sending::next_piece`] tells which parts of what was sent go again.
//! 4. [`Sending::window`] bounds what may be sent for the first time.
//!
//! Loss is found by bytes that were acknowledged selectively (RFC 6675), not by counting acknowledgements, as the other
//! end may receive many segments as one; by the time at which segments were sent (RFC 8985); by probing the tail after
//! two round trips; and by a timeout. What is acknowledged too early for an answer to what went again was not lost
//! (RFC 3522): more segments may overtake one from then on, and if that holds for all that went again since the window
//! was cut, the window is as before. Numbers are those of TCP, times are microseconds.

mod cubic;
mod round_trip;
mod scoreboard;

use cubic::Cubic;
use round_trip::RoundTrip;
use scoreboard::{Arrived, Copies, MOST_CUT, MOST_PIECES, Piece, Scoreboard, State, is_before};

/// Segments that overtake a lost one, and acknowledgements that tell so without SACK.
const THRESHOLD: u32 = 3;
/// The most segments that may overtake one on a path that reorders them.
const MOST_THRESHOLD: u32 = 48;
/// Bytes sent within this time are one piece.
const SAME_TIME: i64 = 100;

/// One end's knowledge of which of its bytes have arrived.
#[derive(Debug)]
pub(super) struct Sending {
    mss: u32,
    board: Scoreboard,
    control: Cubic,
    times: RoundTrip,
    /// When the newest of what has arrived was sent.
    newest: i64,
    /// Until this number is acknowledged, losses are part of the same event.
    recovery: Option<u32>,
    /// Kept in case nothing was lost; boxed, as few connections have one.
    before: Option<Box<Before>>,
    /// Segments that overtake a lost one: more once one was overtaken that was not lost.
    threshold: u32,
    /// Whether that event was a timeout, after which the window grows at once.
    is_collapsed: bool,
    /// Bytes that may be sent again whatever is in flight.
    grant: u32,
    is_probed: bool,
    /// When the last new byte was sent, and when something was acknowledged or given up.
    last_sent: i64,
    progress: i64,
    /// Acknowledgements of nothing new, from an end without SACK.
    duplicates: u32,
    has_sack: bool,
}

/// The congestion window before it was cut.
#[derive(Debug)]
struct Before {
    control: Cubic,
    /// When it was cut.
    cut: i64,
    /// Whether something was only overtaken that was sent again since.
    is_reordered: bool,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgement<'a> {
    pub(super) number: u32,
    /// Ranges beyond the number that have arrived.
    pub(super) blocks: &'a [(u32, u32)],
    /// Whether its segment does nothing but acknowledge.
    pub(super) is_pure: bool,
}

impl Sending {
    /// Begins with the first byte to be sent, after a round trip that took this long, if it is known.
    pub(super) fn new(mss: u32, first: u32, now: i64, round_trip: Option<i64>) -> Self {
        let mut times = RoundTrip::default();
        if let Some(time) = round_trip {
            times.sample(time);
        }
        Self {
            mss,
            board: Scoreboard::new(first),
            control: Cubic::new(mss),
            times,
            newest: i64::MIN,
            recovery: None,
            before: None,
            threshold: THRESHOLD,
            is_collapsed: false,
            grant: 0,
            is_probed: false,
            last_sent: now,
            progress: now,
            duplicates: 0,
            has_sack: false,
        }
    }

    /// Notes that everything before this number was sent.
    pub(super) fn sent(&mut self, now: i64, end: u32) {
        if !is_before(self.board.next, end) {
            return;
        }
        if self.board.in_flight() == 0 {
            self.progress = now;
        }
        self.last_sent = now;
        self.board.next = end;
        let is_full = self.board.pieces.len() >= MOST_PIECES;
        match self.board.pieces.back_mut() {
            Some(last) if is_full && last.state == State::InFlight => {
                (last.end, last.sent) = (end, now);
            }
            Some(last)
                if last.state == State::InFlight
                    && last.copies == Copies::One
                    && now - last.sent <= SAME_TIME =>
            {
                last.end = end;
            }
            _ => self.board.pieces.push_back(Piece {
                end,
                sent: now,
                state: State::InFlight,
                copies: Copies::One,
            }),
        }
    }

    /// Takes an acknowledgement that is acceptable; returns whether it tells of losses.
    pub(super) fn acknowledge(&mut self, now: i64, it: Acknowledgement<'_>) -> bool {
        if is_before(it.number, self.board.first) {
            return false;
        }
        if is_before(self.board.next, it.number) {
            // The byte that has probed a closed window.
            self.sent(now, it.number);
        }
        self.has_sack |= !it.blocks.is_empty();
        let was_full = self.is_full();
        let has_advanced = it.number != self.board.first;
        let cut = self.before.as_ref().map_or(i64::MAX, |it| it.cut);
        let mut arrived = Arrived::new(cut);
        self.board.drop_before(it.number, &mut arrived);
        for (start, end) in it.blocks {
            self.board.hold(*start, *end, &mut arrived);
        }
        self.board.tidy();
        self.learn(now, &arrived);
        self.judge(now, &arrived);
        if has_advanced || arrived.bytes > 0 {
            self.progress = now;
            self.is_probed = false;
            self.times.recover();
        }
        self.duplicates = match has_advanced {
            true => 0,
            false => self.duplicates + u32::from(it.is_pure && self.board.in_flight() > 0),
        };
        if self
            .recovery
            .is_some_and(|point| !is_before(it.number, point))
        {
            (self.recovery, self.is_collapsed) = (None, false);
            self.before = None;
        }
        let has_lost = self.find_lost(has_advanced);
        if has_lost && self.recovery.is_none() {
            self.remember(now);
            self.control.cut();
            self.recovery = Some(self.board.next);
            self.grant = self.mss;
        }
        if arrived.bytes > 0 && was_full && (self.recovery.is_none() || self.is_collapsed) {
            self.control.grow(now, arrived.bytes, self.times.smooth());
        }
        has_lost
    }

    /// Returns when [`Self::expire`] is due.
    pub(super) fn deadline(&self) -> Option<i64> {
        if self.board.in_flight() == 0 {
            return None;
        }
        let timeout = self.progress + self.times.timeout();
        if !self.may_probe() {
            return Some(timeout);
        }
        let probe = self.times.probe(self.board.in_flight() <= self.mss);
        Some(timeout.min(self.last_sent.max(self.progress) + probe))
    }

    /// Gives up waiting if it is time: the tail goes again, or all of it the next time.
    pub(super) fn expire(&mut self, now: i64) -> bool {
        if self.deadline().is_none_or(|at| now < at) {
            return false;
        }
        self.progress = now;
        self.grant = self.mss;
        if self.may_probe() {
            self.is_probed = true;
            self.probe();
            return true;
        }
        if self.times.timeouts() == 0 {
            self.remember(now);
            self.control.collapse();
        }
        self.times.back_off();
        self.give_up();
        self.is_collapsed = true;
        true
    }

    /// Timeouts since something was acknowledged.
    pub(super) fn timeouts(&self) -> u32 {
        self.times.timeouts()
    }

    /// Begins with a small window again if nothing was sent for long; whether it was.
    pub(super) fn rest(&mut self, now: i64) -> bool {
        let is_rested = self.board.in_flight() == 0 && now - self.progress > self.times.timeout();
        if is_rested {
            self.progress = now;
            self.control.restart();
        }
        is_rested
    }

    /// Sends everything again in segments that are no longer than this: a router has dropped the longer ones.
    pub(super) fn shorten(&mut self, mss: u32) {
        self.mss = mss;
        self.control.set_mss(mss);
        self.give_up();
    }

    /// Returns whether something that is lost may go again now.
    pub(super) fn wants_to_resend(&self) -> bool {
        self.board.lost > 0 && self.budget() >= self.mss.min(self.board.lost)
    }

    /// The number behind all that was sent.
    pub(super) fn next(&self) -> u32 {
        self.board.next
    }

    /// The number of the first byte that has not been acknowledged.
    pub(super) fn first(&self) -> u32 {
        self.board.first
    }

    /// Returns whether what has this number was sent and not acknowledged.
    pub(super) fn is_in_flight(&self, number: u32) -> bool {
        !is_before(number, self.board.first) && is_before(number, self.board.next)
    }

    /// Finds the first part of a range that is to be sent: what is lost, as far as it may go again now, or new.
    ///
    /// It is taken to be sent.
    pub(super) fn next_piece(&mut self, now: i64, from: u32, end: u32) -> Option<(u32, u32)> {
        let mut start = self.board.first;
        for index in 0..self.board.pieces.len() {
            let piece = self.board.pieces[index];
            let (mut lost_from, mut lost_to) = (start, piece.end);
            start = piece.end;
            if is_before(lost_from, from) {
                lost_from = from;
            }
            if is_before(end, lost_to) {
                lost_to = end;
            }
            if piece.state != State::Lost || !is_before(lost_from, lost_to) {
                continue;
            }
            let budget = self.budget();
            if lost_to.wrapping_sub(lost_from) > budget {
                lost_to = lost_from.wrapping_add(budget / self.mss * self.mss);
            }
            if lost_to == lost_from || self.board.pieces.len() >= MOST_CUT {
                break;
            }
            self.resend(now, lost_from, lost_to);
            return Some((lost_from, lost_to));
        }
        let new = if is_before(from, self.board.next) {
            self.board.next
        } else {
            from
        };
        is_before(new, end).then_some((new, end))
    }

    /// Bytes behind the last acknowledgement that may have been sent.
    pub(super) fn window(&self) -> u32 {
        let free = self.control.window().saturating_sub(self.board.under_way());
        let new = free.saturating_sub(self.board.lost) / self.mss * self.mss;
        self.board.in_flight() + new
    }

    fn budget(&self) -> u32 {
        let free = self.control.window().saturating_sub(self.board.under_way());
        free.max(self.grant)
    }

    /// Returns whether the window, rather than the program, limits what is in flight.
    fn is_full(&self) -> bool {
        let under_way = self.board.under_way() + self.board.lost;
        let window = self.control.window();
        let half = self.control.is_in_slow_start() && 2 * under_way >= window;
        half || under_way + THRESHOLD * self.mss >= window
    }

    fn may_probe(&self) -> bool {
        let is_undisturbed = self.recovery.is_none() && self.board.lost == 0;
        is_undisturbed && !self.is_probed && self.times.timeouts() == 0
    }

    /// Learns from the times at which that was sent which has arrived.
    fn learn(&mut self, now: i64, arrived: &Arrived) {
        if let Some(sent) = arrived.fresh {
            self.times.sample(now - sent);
            self.newest = self.newest.max(sent);
        }
        // An answer that is too early is one to what was sent first.
        if let Some(sent) = arrived.resent
            && now - sent >= self.times.least()
        {
            self.newest = self.newest.max(sent);
        }
    }

    /// Remembers the congestion window that is about to be cut.
    fn remember(&mut self, now: i64) {
        self.before = Some(Box::new(Before {
            control: self.control.clone(),
            cut: now,
            is_reordered: false,
        }));
    }

    /// Judges the last cut by what was sent again since (RFC 3522): it was a mistake if all of that has arrived, and too
    /// early to be the answer.
    fn judge(&mut self, now: i64, arrived: &Arrived) {
        let Some((before, (oldest, newest))) = self.before.as_mut().zip(arrived.again) else {
            return;
        };
        let cut = before.cut;
        let is_early = |sent: i64| now - sent < self.times.least() / 2;
        if is_early(newest) && !std::mem::replace(&mut before.is_reordered, true) {
            self.threshold = (2 * self.threshold).min(MOST_THRESHOLD);
        }
        if !is_early(oldest) && !self.is_collapsed {
            // It was probably lost. A timeout takes everything for lost, of which the first that is late says little.
            self.before = None;
        } else if is_early(newest) {
            let mut pieces = self.board.pieces.iter();
            if !pieces.any(|it| it.was_sent_again(cut)) {
                self.undo(now);
            }
        }
    }

    /// Takes the last event back: nothing was lost, but overtaken or late.
    fn undo(&mut self, now: i64) {
        if let Some(before) = self.before.take() {
            self.control = before.control;
            self.control.set_mss(self.mss);
        }
        (self.recovery, self.is_collapsed, self.grant) = (None, false, 0);
        for piece in &mut self.board.pieces {
            if piece.state == State::Lost {
                (piece.state, piece.sent) = (State::InFlight, now);
                piece.copies = Copies::Unknown;
            }
        }
        self.board.tidy();
    }

    /// Marks what is lost; whether something is now that was not.
    fn find_lost(&mut self, has_advanced: bool) -> bool {
        let mut has_lost = false;
        // Of few segments, few can tell.
        let half = self.board.in_flight() / self.mss / 2;
        let threshold = self.threshold.min(half).max(THRESHOLD);
        let patience = self.times.reordering(self.threshold / THRESHOLD);
        let (overtaken, late) = (threshold * self.mss, self.newest.saturating_sub(patience));
        let mut above = 0;
        for index in (0..self.board.pieces.len()).rev() {
            let from = match index {
                0 => self.board.first,
                _ => self.board.pieces[index - 1].end,
            };
            let piece = &mut self.board.pieces[index];
            match piece.state {
                State::Held => above += piece.end.wrapping_sub(from),
                State::InFlight => {
                    let is_overtaken = piece.copies != Copies::Several && above >= overtaken;
                    // Without SACK, what has arrived behind a hole is not known.
                    if is_overtaken || (self.has_sack && piece.sent < late) {
                        piece.state = State::Lost;
                        has_lost = true;
                    }
                }
                State::Lost => {}
            }
        }
        let is_next_hole = has_advanced && self.recovery.is_some();
        if !self.has_sack && (is_next_hole || self.duplicates == threshold) {
            has_lost |= self.board.lose_first(self.mss);
        }
        self.board.tidy();
        has_lost
    }

    /// Retransmits the last segment: its acknowledgement tells what is missing before it.
    fn probe(&mut self) {
        if self.board.in_flight() > self.mss {
            self.board.split(self.board.next.wrapping_sub(self.mss));
        }
        let last = self
            .board
            .pieces
            .iter_mut()
            .rfind(|it| it.state != State::Held);
        if let Some(last) = last {
            last.state = State::Lost;
        }
        self.board.tidy();
    }

    /// Takes all that has not arrived for lost.
    fn give_up(&mut self) {
        // An end that lacks the first byte although it has acknowledged it has discarded what it held.
        let has_reneged = self
            .board
            .pieces
            .front()
            .is_some_and(|it| it.state == State::Held);
        for piece in &mut self.board.pieces {
            if piece.state != State::Held || has_reneged {
                (piece.state, piece.copies) = (State::Lost, Copies::Several);
                piece.sent = self.progress;
            }
        }
        self.recovery = (self.board.in_flight() > 0).then_some(self.board.next);
        self.grant = self.mss;
        self.board.tidy();
    }

    fn resend(&mut self, now: i64, start: u32, end: u32) {
        self.board.split(start);
        self.board.split(end);
        let mut from = self.board.first;
        for piece in &mut self.board.pieces {
            if !is_before(from, start) && !is_before(end, piece.end) {
                (piece.state, piece.copies) = (State::InFlight, Copies::Several);
                piece.sent = now;
            }
            from = piece.end;
        }
        self.grant = self.grant.saturating_sub(end.wrapping_sub(start));
        self.board.tidy();
    }
}

#[cfg(test)]
mod tests;
