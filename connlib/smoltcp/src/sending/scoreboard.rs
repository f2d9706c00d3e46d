//! A scoreboard: the bytes sent that have arrived, and those that are lost (RFC 6675).

use std::collections::VecDeque;

/// Most pieces that are tracked; SACKed bytes beyond are acknowledged again later.
pub(super) const MOST_PIECES: usize = 256;
/// With those that sending again has cut.
pub(super) const MOST_CUT: usize = 2 * MOST_PIECES;

/// All that was sent and not acknowledged, in pieces.
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// The numbers of the first byte that has not been acknowledged, and of the next one to be sent.
    pub(super) first: u32,
    pub(super) next: u32,
    /// All between these, in their order.
    pub(super) pieces: VecDeque<Piece>,
    /// Bytes of pieces that have arrived, and that are lost and not sent again yet.
    pub(super) held: u32,
    pub(super) lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) end: u32,
    /// When it was sent last, or from when it is waited for.
    pub(super) sent: i64,
    pub(super) state: State,
    pub(super) copies: Copies,
}

/// Copies of a piece that were sent: whether its arrival tells which of them has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// It was sent once.
    One,
    /// It was sent again, or is to be after a timeout.
    Several,
    /// It was taken for lost by mistake, and the time is that of finding that out.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    InFlight,
    Held,
    Lost,
}

impl Scoreboard {
    /// Creates one of a connection whose next byte has this number.
    pub(super) fn new(first: u32) -> Self {
        Self {
            first,
            next: first,
            pieces: VecDeque::new(),
            held: 0,
            lost: 0,
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Bytes that are probably in the network.
    pub(super) fn under_way(&self) -> u32 {
        self.in_flight() - self.held - self.lost
    }

    /// Forgets what was acknowledged.
    pub(super) fn drop_before(&mut self, number: u32, arrived: &mut Arrived) {
        while let Some(piece) = self.pieces.front() {
            let is_whole = !is_before(number, piece.end);
            let end = if is_whole { piece.end } else { number };
            arrived.add(piece, end.wrapping_sub(self.first));
            self.first = end;
            if !is_whole {
                break;
            }
            self.pieces.pop_front();
        }
        self.first = number;
    }

    /// Notes that a range has arrived.
    pub(super) fn hold(&mut self, start: u32, end: u32, arrived: &mut Arrived) {
        let is_known = !is_before(start, self.first) && !is_before(self.next, end);
        if !is_known || !is_before(start, end) || self.pieces.len() >= MOST_PIECES {
            return;
        }
        self.split(start);
        self.split(end);
        let mut from = self.first;
        for piece in &mut self.pieces {
            let length = piece.end.wrapping_sub(from);
            if !is_before(from, start) && !is_before(end, piece.end) {
                arrived.add(piece, length);
                piece.state = State::Held;
            }
            from = piece.end;
        }
    }

    /// Makes a piece end at this number.
    pub(super) fn split(&mut self, at: u32) {
        let mut from = self.first;
        for index in 0..self.pieces.len() {
            let piece = self.pieces[index];
            if is_before(from, at) && is_before(at, piece.end) {
                self.pieces.insert(index, Piece { end: at, ..piece });
                return;
            }
            from = piece.end;
        }
    }

    /// Marks the first segment as lost.
    pub(super) fn lose_first(&mut self, mss: u32) -> bool {
        let end = self.first.wrapping_add(mss);
        self.split(end);
        match self.pieces.front_mut() {
            Some(piece) if piece.state == State::InFlight && piece.copies != Copies::Several => {
                piece.state = State::Lost;
                true
            }
            _ => false,
        }
    }

    /// Joins pieces that are alike, and counts.
    pub(super) fn tidy(&mut self) {
        (self.held, self.lost) = (0, 0);
        let (mut from, mut kept) = (self.first, 0_usize);
        for index in 0..self.pieces.len() {
            let piece = self.pieces[index];
            let length = piece.end.wrapping_sub(from);
            from = piece.end;
            match piece.state {
                State::Held => self.held += length,
                State::Lost => self.lost += length,
                State::InFlight => {}
            }
            match kept.checked_sub(1).map(|last| &mut self.pieces[last]) {
                Some(last) if last.is_like(&piece) => {
                    (last.end, last.sent) = (piece.end, last.sent.max(piece.sent));
                }
                _ => {
                    self.pieces[kept] = piece;
                    kept += 1;
                }
            }
        }
        self.pieces.truncate(kept);
    }
}

impl Piece {
    /// Returns whether it is under way since it was sent again, at or after this time.
    pub(super) fn was_sent_again(&self, since: i64) -> bool {
        self.state == State::InFlight && self.copies == Copies::Several && self.sent >= since
    }

    /// Returns whether another piece behind this one needs not be told apart from it.
    fn is_like(&self, next: &Self) -> bool {
        let is_same = match self.state {
            State::Held => true,
            State::Lost => self.copies == next.copies,
            State::InFlight => self.copies == next.copies && self.sent == next.sent,
        };
        self.state == next.state && is_same
    }
}

/// Bytes that have arrived according to an acknowledgement, and when the newest of them were sent.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) bytes: u32,
    pub(super) fresh: Option<i64>,
    pub(super) resent: Option<i64>,
    /// When the oldest and the newest of them were sent again, if that was at or after `since`.
    pub(super) again: Option<(i64, i64)>,
    since: i64,
}

impl Arrived {
    pub(super) fn new(since: i64) -> Self {
        Self {
            bytes: 0,
            fresh: None,
            resent: None,
            again: None,
            since,
        }
    }

    fn add(&mut self, piece: &Piece, bytes: u32) {
        if piece.state == State::Held || bytes == 0 {
            return;
        }
        self.bytes += bytes;
        let newest = match piece.copies {
            Copies::One => &mut self.fresh,
            Copies::Several => &mut self.resent,
            Copies::Unknown => return,
        };
        *newest = (*newest).max(Some(piece.sent));
        if piece.was_sent_again(self.since) {
            let (oldest, newest) = self.again.unwrap_or((piece.sent, piece.sent));
            self.again = Some((oldest.min(piece.sent), newest.max(piece.sent)));
        }
    }
}

/// Returns whether a sequence number comes before another.
pub(super) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
