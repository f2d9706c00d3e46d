//! Round-trip times (RFC 6298), in microseconds.

/// The least time that a timeout adds to a round trip: acknowledgements may be delayed.
const LEAST_MARGIN: i64 = 200_000;
const FIRST_TIMEOUT: i64 = 1_000_000;
/// Longest time before a segment goes again, in microseconds.
const LONGEST_TIMEOUT: i64 = 60_000_000;
/// The shortest wait for the acknowledgement of a tail before it is probed.
const LEAST_PROBE: i64 = 30_000;

#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    smooth: Option<i64>,
    variation: i64,
    least: i64,
    backoff: u32,
}

impl RoundTrip {
    pub(super) fn sample(&mut self, time: i64) {
        let time = time.max(1);
        match self.smooth {
            Some(smooth) => {
                self.variation += ((smooth - time).abs() - self.variation) / 4;
                self.smooth = Some(smooth + (time - smooth) / 8);
                self.least = self.least.min(time);
            }
            None => (self.smooth, self.variation, self.least) = (Some(time), time / 2, time),
        }
    }

    /// A smoothed round trip, or zero if none was measured.
    pub(super) fn smooth(&self) -> i64 {
        self.smooth.unwrap_or(0)
    }

    pub(super) fn least(&self) -> i64 {
        self.least
    }

    /// After this time without an acknowledgement, everything counts as lost.
    pub(super) fn timeout(&self) -> i64 {
        let margin = LEAST_MARGIN.max(4 * self.variation);
        let once = self.smooth.map_or(FIRST_TIMEOUT, |it| it + margin);
        (once << self.backoff.min(16)).min(LONGEST_TIMEOUT)
    }

    /// After this time, the end of what is in flight is sent again (RFC 8985).
    pub(super) fn probe(&self, is_one_segment: bool) -> i64 {
        let delay = if is_one_segment { LEAST_MARGIN } else { 2_000 };
        match self.smooth {
            Some(smooth) => (2 * smooth + delay).max(LEAST_PROBE).min(self.timeout()),
            None => FIRST_TIMEOUT,
        }
    }

    /// Returns how long a segment may be overtaken before it counts as lost, in quarters of a round trip, at most a
    /// whole one.
    pub(super) fn reordering(&self, quarters: u32) -> i64 {
        let quarters = i64::from(quarters.min(4));
        (quarters * self.smooth() / 4).max(100)
    }

    pub(super) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Timeouts since the last acknowledgement of something new.
    pub(super) fn timeouts(&self) -> u32 {
        self.backoff
    }

    pub(super) fn recover(&mut self) {
        self.backoff = 0;
    }
}
