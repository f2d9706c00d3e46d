//! Memory, descriptors and threads, which must not grow.

use super::{Verdict, after_warm_up, median, verdict, warm_up};
use crate::soak::record::{Record, Sample};

/// How much more memory a daemon may have at the end than after the warm-up.
const GROWTH_KIB: f64 = 1_024.0;
/// How steep its memory may rise.
const SLOPE_KIB_PER_MINUTE: f64 = 100.0;
/// A slope over fewer seconds after the warm-up says nothing.
const SLOPE_SECONDS: usize = 180;
/// The number of stretches whose medians give a slope.
const STRETCHES: usize = 200;
/// Descriptors that UAPI clients and a change of port need for a moment.
const MOMENTARY: f64 = 8.0;

/// Median memory of the last tenth against that of the first.
pub(super) fn growth(record: &Record) -> Verdict {
    let samples = after_warm_up(record);
    let growths = by_daemon(record, |daemon| {
        let values: Vec<_> = samples.iter().map(|s| s.rss_kib[daemon] as f64).collect();
        let (first, last) = ends(&values);
        (last - first, first)
    });
    let passed = !samples.is_empty() && growths.iter().all(|(_, (grown, _))| *grown <= GROWTH_KIB);
    let found = growths
        .iter()
        .map(|(name, (grown, from))| format!("{name} {grown:+.0} of {from:.0}"));
    verdict(
        "memory flat (VmRSS, KiB)",
        passed,
        found.collect::<Vec<_>>().join(", "),
        format!(
            "at most {GROWTH_KIB} KiB more in the last tenth than in the first after {} s",
            warm_up(record)
        ),
    )
}

/// The trend of memory, whatever it does from second to second.
pub(super) fn slope(record: &Record) -> Verdict {
    let samples = after_warm_up(record);
    let bound = format!("at most {SLOPE_KIB_PER_MINUTE} KiB a minute");
    let what = "memory has no trend";
    if samples.len() < SLOPE_SECONDS {
        return verdict(what, true, "too short a run to tell".to_owned(), bound);
    }
    let slopes = by_daemon(record, |daemon| {
        let points = samples.iter().map(|s| (s.at_s, s.rss_kib[daemon] as f64));
        slope_of(&points.collect::<Vec<_>>()) * 60.0
    });
    let passed = slopes
        .iter()
        .all(|(_, slope)| *slope <= SLOPE_KIB_PER_MINUTE);
    let found = slopes
        .iter()
        .map(|(name, slope)| format!("{name} {slope:+.1}"));
    let found = found.collect::<Vec<_>>().join(", ") + " KiB a minute";
    verdict(what, passed, found, bound)
}

/// As many at the end as after the warm-up, and never many more.
pub(super) fn descriptors(record: &Record) -> Verdict {
    equal(record, "descriptors flat", |sample| &sample.descriptors)
}

/// As many at the end as after the warm-up.
pub(super) fn threads(record: &Record) -> Verdict {
    equal(record, "threads flat", |sample| &sample.threads)
}

fn equal(record: &Record, what: &str, of: fn(&Sample) -> &[u64]) -> Verdict {
    let samples = after_warm_up(record);
    let counts = by_daemon(record, |daemon| {
        let values: Vec<_> = samples.iter().map(|s| of(s)[daemon] as f64).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        (ends(&values), most)
    });
    let flat =
        |&((first, last), most): &((f64, f64), f64)| first == last && most <= last + MOMENTARY;
    let found = counts
        .iter()
        .map(|(name, ((first, last), most))| format!("{name} {first} → {last} (most {most})"));
    verdict(
        what,
        !samples.is_empty() && counts.iter().all(|(_, count)| flat(count)),
        found.collect::<Vec<_>>().join(", "),
        format!("the same number in the last tenth as in the first; never {MOMENTARY} more"),
    )
}

fn by_daemon<T>(record: &Record, value: impl Fn(usize) -> T) -> Vec<(&str, T)> {
    let names = record.header.daemons.iter().enumerate();
    names
        .map(|(number, name)| (name.as_str(), value(number)))
        .collect()
}

/// Medians of the first and of the last tenth.
fn ends(values: &[f64]) -> (f64, f64) {
    let tenth = (values.len() / 10).clamp(10, 3_600).min(values.len());
    let (first, last) = (&values[..tenth], &values[values.len() - tenth..]);
    (median(first.iter().copied()), median(last.iter().copied()))
}

/// The median of the slopes between all pairs of points (Theil 1950, Sen 1968), over medians of
/// stretches: single peaks do not move it.
fn slope_of(points: &[(f64, f64)]) -> f64 {
    let stretch = points.len().div_ceil(STRETCHES).max(1);
    let middle = |part: &[(f64, f64)]| {
        let values = part.iter().map(|point| point.1);
        (part[part.len() / 2].0, median(values))
    };
    let points: Vec<_> = points.chunks(stretch).map(middle).collect();
    let pairs = points.iter().enumerate().flat_map(|(number, a)| {
        let later = points[number + 1..].iter();
        later.map(move |b| (b.1 - a.1) / (b.0 - a.0))
    });
    median(pairs)
}
