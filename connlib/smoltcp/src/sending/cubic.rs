//! The congestion window, in bytes (RFC 9438, RFC 6928).

/// The fraction of a window that a loss leaves.
const BETA: f64 = 0.7;
/// Growth of the window, in segments per second cubed.
const C: f64 = 0.4;
/// The first window, in segments and in bytes.
const FIRST_SEGMENTS: u32 = 10;
const FIRST_BYTES: u32 = 14_600;
/// More than any buffer holds.
const MOST: f64 = (1_u32 << 30) as f64;

/// CUBIC, fed with the bytes that were acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    mss: f64,
    window: f64,
    threshold: f64,
    /// The window before the last cut.
    most: f64,
    /// When the current period of growth began, in microseconds, and its parameters.
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    begun: i64,
    /// Seconds until the window is what it was before the cut.
    k: f64,
    origin: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Cubic {
    pub(super) fn new(mss: u32) -> Self {
        let first = (FIRST_SEGMENTS * mss).min(FIRST_BYTES.max(2 * mss));
        Self {
            mss: mss.into(),
            window: first.into(),
            threshold: MOST,
            most: 0.0,
            epoch: None,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u32 {
        self.window as u32
    }

    pub(super) fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    pub(super) fn set_mss(&mut self, mss: u32) {
        self.mss = mss.into();
        self.window = self.window.max(2.0 * self.mss);
    }

    /// Grows the window after this many bytes were acknowledged that had filled it.
    pub(super) fn grow(&mut self, now: i64, bytes: u32, round_trip: i64) {
        let bytes = f64::from(bytes);
        if self.is_in_slow_start() {
            self.window = (self.window + bytes)
                .min(self.threshold.max(self.window))
                .min(MOST);
            return;
        }
        let (window, mss) = (self.window, self.mss);
        let most = self.most;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = (most - window).max(0.0) / mss;
            Epoch {
                begun: now,
                k: (missing / C).cbrt(),
                origin: window.max(most),
                reno: window,
            }
        });
        let elapsed = (now - epoch.begun + round_trip) as f64 / 1e6;
        let target = epoch.origin + C * (elapsed - epoch.k).powi(3) * mss;
        let target = target.clamp(window, 1.5 * window);
        // As fast as Reno, whose window is cut by half rather than by 0.3.
        let alpha = if epoch.reno < most {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        epoch.reno += alpha * mss * bytes / window;
        let cubic = window + (target - window) * bytes / window;
        self.window = cubic.max(epoch.reno.min(window + bytes)).min(MOST);
    }

    /// Cuts the window, once for all that is lost in a round trip.
    pub(super) fn cut(&mut self) {
        // A flow whose window has shrunk since the last loss leaves room to others.
        self.most = if self.window < self.most {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.threshold = (self.window * BETA).max(2.0 * self.mss);
        self.window = self.threshold;
        self.epoch = None;
    }

    /// Begins again with one segment after a timeout.
    pub(super) fn collapse(&mut self) {
        self.cut();
        self.window = self.mss;
    }

    /// Begins again with the first window after a pause.
    pub(super) fn restart(&mut self) {
        let first = Self::new(self.mss as u32).window;
        self.window = self.window.min(first);
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;
    const ROUND_TRIP: i64 = 20_000;

    #[test]
    fn the_first_window_is_ten_segments_and_never_more_than_14600_bytes_or_two_segments() {
        for (mss, first) in [
            (536, 5_360),
            (1_380, 13_800),
            (1_460, 14_600),
            (9_000, 18_000),
        ] {
            assert_eq!(Cubic::new(mss).window(), first);
        }
    }

    #[test]
    fn bytes_count_however_few_acknowledgements_carry_them() {
        let mut cubic = Cubic::new(MSS);
        cubic.grow(0, 10_000, ROUND_TRIP);
        assert_eq!(cubic.window(), 20_000);
    }

    #[test]
    fn after_a_cut_the_window_is_0_7_and_then_comes_back_to_where_it_was() {
        let mut cubic = Cubic::new(MSS);
        cubic.grow(0, 90_000, ROUND_TRIP);
        cubic.cut();
        assert_eq!(cubic.window(), 70_000);
        let mut now = 0;
        while cubic.window() < 100_000 {
            now += ROUND_TRIP;
            let before = cubic.window();
            cubic.grow(now, before, ROUND_TRIP);
            assert!(cubic.window() <= before + before / 2);
            assert!(now < 6_000_000, "{cubic:?}");
        }
        assert!(now > 100_000, "{cubic:?}");
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_slow_start_up_to_the_threshold() {
        let mut cubic = Cubic::new(MSS);
        cubic.collapse();
        assert_eq!(cubic.window(), MSS);
        cubic.grow(0, 1_000_000, ROUND_TRIP);
        assert_eq!(cubic.window(), 7_000);
    }
}
