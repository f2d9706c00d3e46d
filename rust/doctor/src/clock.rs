//! The wall clock: handshakes carry its time, and a peer refuses one whose time is not later than the last.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;

use super::finding::Finding;

const ID: &str = "clock";

/// Convoy is younger than this (2026-01-01), in seconds since 1970.
const EARLIEST: u64 = 1_767_225_600;

/// A later time is as wrong as one before [`EARLIEST`] (2100-01-01).
const LATEST: u64 = 4_102_444_800;

/// The hardware clock may show local time, up to 14 hours from UTC.
const DRIFT: Duration = Duration::from_hours(24);

/// Files that are written while the machine runs, so that their times tell whether the clock was ahead.
const WITNESSES: [&str; 5] = [
    "/run/convoy",
    "/var/lib/convoy",
    "/var/lib/systemd/timesync/clock",
    "/var/log",
    "/var/tmp",
];

/// A file may be this much younger than now: file systems of other hosts have clocks of their own.
const TOLERANCE: Duration = Duration::from_mins(10);

/// Everything that is known of the time.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) now: SystemTime,
    /// The hardware clock, if there is one.
    pub(super) hardware: Option<SystemTime>,
    /// The latest time at which one of the [`WITNESSES`] was written.
    pub(super) witnessed: Option<SystemTime>,
}

impl Clock {
    pub(super) fn gather() -> Self {
        let hardware = fs::read_to_string("/sys/class/rtc/rtc0/since_epoch");
        let seconds = hardware.ok().and_then(|text| text.trim().parse().ok());
        let witnesses = WITNESSES.iter().map(Path::new);
        let times = witnesses.filter_map(|path| fs::metadata(path).ok()?.modified().ok());
        Self {
            now: SystemTime::now(),
            hardware: seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            witnessed: times.max(),
        }
    }
}

/// Judges the wall clock.
pub(super) fn judge(clock: &Clock) -> Finding {
    let now = shown(clock.now);
    let seconds = clock
        .now
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    if !(EARLIEST..LATEST).contains(&seconds) {
        return Finding::error(
            ID,
            format!(
                "The clock says {now}: peers take handshakes from the past for replays, and once they have \
                     seen one from the future, they refuse all until then."
            ),
            "Set it: `timedatectl set-ntp true`, or `date -s`.",
        );
    }
    let is_ahead = |time: &SystemTime| {
        time.duration_since(clock.now)
            .is_ok_and(|it| it > TOLERANCE)
    };
    if let Some(time) = clock.witnessed.filter(is_ahead) {
        return Finding::warning(
            ID,
            format!(
                "The clock says {now}, but files were written at {}: peers that saw a handshake from then \
                     refuse all until then.",
                shown(time)
            ),
            "If the clock is right now, have the peers remove this host's key and add it again; else set it: \
             `timedatectl set-ntp true`.",
        );
    }
    let is_off = |hardware: &SystemTime| {
        let ahead = hardware.duration_since(clock.now);
        ahead.unwrap_or_else(|behind| behind.duration()) > DRIFT
    };
    if let Some(hardware) = clock.hardware.filter(is_off) {
        return Finding::warning(
            ID,
            format!(
                "The clock says {now}, the hardware clock {}: after a restart, peers may take handshakes for \
                     replays until the clock is set.",
                shown(hardware)
            ),
            "`hwclock --systohc`, if the clock is right.",
        );
    }
    Finding::ok(ID, format!("The clock says {now}."))
}

fn shown(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    /// 2026-11-23.
    const NOW: u64 = 1_795_392_000;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn clock() -> Clock {
        Clock {
            now: at(NOW),
            hardware: Some(at(NOW + 2 * 3_600)),
            witnessed: Some(at(NOW + 60)),
        }
    }

    #[test]
    fn a_clock_that_was_never_set_is_an_error() {
        assert_eq!(judge(&clock()).severity, Severity::Ok);
        for now in [0, EARLIEST - 1, LATEST] {
            let now = Clock {
                now: at(now),
                ..clock()
            };
            assert_eq!(judge(&now).severity, Severity::Error);
        }
    }

    #[test]
    fn a_clock_that_ran_ahead_is_known_by_the_files_it_left() {
        let witnessed = Some(at(NOW + 86_400));
        let finding = judge(&Clock {
            witnessed,
            ..clock()
        });
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.what.contains("2026-11-24"), "{}", finding.what);
        let witnessed = None;
        assert_eq!(
            judge(&Clock {
                witnessed,
                ..clock()
            })
            .severity,
            Severity::Ok
        );
    }

    #[test]
    fn a_hardware_clock_that_is_days_off_is_told_but_local_time_is_not() {
        for (hardware, severity) in [
            (NOW - 3 * 86_400, Severity::Warning),
            (NOW + 3 * 86_400, Severity::Warning),
            (NOW - 14 * 3_600, Severity::Ok),
        ] {
            let hardware = Some(at(hardware));
            assert_eq!(
                judge(&Clock {
                    hardware,
                    ..clock()
                })
                .severity,
                severity
            );
        }
    }
}
