//! The TAI64N timestamp of an initiation (WireGuard paper §5.1), by which the responder detects replays.

use std::time::Duration;

/// TAI64's label of 1970-01-01 00:00:10 TAI, which was midnight UTC. Leap seconds since are ignored, as in
/// the reference.
const UNIX_EPOCH: u64 = 0x4000_0000_0000_000a;

/// The bits of the nanoseconds that are cleared, as in the reference. So a timestamp shows this host's clock
/// only in steps of 16.8 ms, too coarse to time a computation.
const WHITENED: u32 = 0x00ff_ffff;

/// A timestamp; a later one compares as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tai64n(pub [u8; 12]);

impl Tai64n {
    /// The timestamp of a moment, which is given as the time since the Unix epoch.
    pub fn at(unix: Duration) -> Self {
        let mut stamp = [0; 12];
        let seconds = UNIX_EPOCH.saturating_add(unix.as_secs());
        stamp[..8].copy_from_slice(&seconds.to_be_bytes());
        let nanoseconds = unix.subsec_nanos() & !WHITENED;
        stamp[8..].copy_from_slice(&nanoseconds.to_be_bytes());
        Self(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_ten_seconds_into_1970_as_in_the_reference() {
        let epoch = Tai64n::at(Duration::ZERO);
        assert_eq!(epoch.0, [0x40, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0]);
        let later = Tai64n::at(Duration::new(1_700_000_000, 999_999_999));
        assert_eq!(later.0[..8], (UNIX_EPOCH + 1_700_000_000).to_be_bytes());
        assert_eq!(later.0[8..], 0x3b00_0000_u32.to_be_bytes());
    }

    #[test]
    fn stamps_increase_with_time_in_steps_of_sixteen_milliseconds() {
        let mut last = Tai64n::default();
        let mut steps = 0;
        for ms in 0..2_000 {
            let stamp = Tai64n::at(Duration::from_millis(1_000_000 + ms));
            assert!(stamp >= last);
            steps += u32::from(stamp > last);
            last = stamp;
        }
        assert_eq!(steps, 2 * 60, "a second has 59.6 of them");
    }
}
