//! Times and rates, as people read them.

use convoy_stats::binary;
use jiff::{
    Span, Timestamp,
    fmt::friendly::{Designator, Direction, Spacing, SpanPrinter},
};

use super::Rate;

/// `3 minutes, 4 seconds ago`
pub(super) fn ago(time: u64, now: Timestamp) -> String {
    match until_now(time, now) {
        0 => "now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// `3 minutes, 4 seconds`: the two largest units.
pub(super) fn span(seconds: u64) -> String {
    let printer = SpanPrinter::new()
        .designator(Designator::Verbose)
        .spacing(Spacing::BetweenUnitsAndDesignators)
        .comma_after_designator(true)
        .direction(Direction::Sign);
    let (minute, hour, day) = (60, 60 * 60, 24 * 60 * 60);
    let units = match seconds {
        _ if seconds >= day => [seconds / day, seconds % day / hour, 0, 0],
        _ if seconds >= hour => [0, seconds / hour, seconds % hour / minute, 0],
        _ => [0, 0, seconds / minute, seconds % minute],
    };
    // Nobody waits longer than a span can be.
    let [days, hours, minutes, seconds] = units.map(|unit| i64::try_from(unit).unwrap_or(0));
    let span = Span::new().try_days(days).unwrap_or_default();
    printer.span_to_string(&span.hours(hours).minutes(minutes).seconds(seconds))
}

/// Seconds from now to a later time.
pub(super) fn from_now(later: u64, now: Timestamp) -> u64 {
    let now = u64::try_from(now.as_second()).unwrap_or_default();
    later.saturating_sub(now)
}

/// Seconds from an earlier time to now.
pub(crate) fn until_now(earlier: u64, now: Timestamp) -> u64 {
    let now = u64::try_from(now.as_second()).unwrap_or_default();
    now.saturating_sub(earlier)
}

/// Microseconds as `12.3 ms`.
pub(super) fn milliseconds(microseconds: u64) -> String {
    format!("{:.1} ms", microseconds as f64 / 1_000.0)
}

/// `1.20 MiB/s received, 0 B/s sent (over 7 s)`
pub(super) fn rate(rate: Rate) -> String {
    let (received, sent) = (binary(rate.rx), binary(rate.tx));
    format!(
        "{received}/s received, {sent}/s sent (over {:.0} s)",
        rate.seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_two_units() {
        for (seconds, expected) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (64, "1 minute, 4 seconds"),
            (3_600, "1 hour"),
            (3_723, "1 hour, 2 minutes"),
            (90_000, "1 day, 1 hour"),
            (86_400 * 400 + 59, "400 days"),
        ] {
            assert_eq!(span(seconds), expected);
        }
        assert!(!span(u64::MAX).is_empty());
    }

    #[test]
    fn times_of_a_clock_that_was_set_back_are_now() {
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(ago(1_005, now), "now");
        assert_eq!(ago(940, now), "1 minute ago");
        assert_eq!(from_now(940, now), 0);
    }

    #[test]
    fn a_round_trip_is_in_milliseconds() {
        let all = [90, 12_345, 1_500_000].map(milliseconds);
        assert_eq!(all, ["0.1 ms", "12.3 ms", "1500.0 ms"]);
    }
}
