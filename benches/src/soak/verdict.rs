//! The verdicts on a run, each with its figure and its bound.

mod changes;
mod flat;
#[cfg(test)]
mod tests;
mod traffic;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::soak::record::{Record, Sample};

/// How long an event may have effects after its end, in seconds.
const SETTLING: f64 = 5.0;
/// The warm-up, which is not counted, in seconds; in a short run a quarter of it.
const WARM_UP: f64 = 120.0;

/// A sample may be so late, in seconds.
const LATE: f64 = 0.5;
/// How much of all CPUs other programs may use.
const OTHERS: f64 = 0.25;

/// One conclusion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) passed: bool,
    pub(crate) found: String,
    pub(crate) bound: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            passed,
            found,
            bound,
        } = self;
        let word = if *passed { "pass" } else { "FAIL" };
        write!(f, "{word}  {what}: {found}\n      bound: {bound}")
    }
}

/// All verdicts on a run.
pub(crate) fn judge(record: &Record) -> Vec<Verdict> {
    vec![
        alive(record),
        undisturbed(record),
        changes::events(record),
        changes::handshakes(record),
        traffic::data(record),
        traffic::stalls(record),
        flat::growth(record),
        flat::slope(record),
        flat::descriptors(record),
        flat::threads(record),
        traffic::median(record),
        traffic::p99(record),
        traffic::lost_probes(record),
        changes::drops(record),
    ]
}

fn verdict(what: &str, passed: bool, found: String, bound: String) -> Verdict {
    Verdict {
        what: what.to_owned(),
        passed,
        found,
        bound,
    }
}

fn alive(record: &Record) -> Verdict {
    let enough = record.samples.len() as u64 >= record.header.secs;
    let found = match &record.death {
        Some(death) => death.clone(),
        None => format!("all for {} s", record.samples.len()),
    };
    let bound = "no daemon ends early".to_owned();
    verdict(
        "daemons alive",
        record.death.is_none() && enough,
        found,
        bound,
    )
}

/// A machine that stands still, or works for others, says little about a daemon.
fn undisturbed(record: &Record) -> Verdict {
    let due = record.samples.iter().zip(1..);
    let late = due.map(|(sample, second)| sample.at_s - f64::from(second));
    let latest = late.fold(0.0, f64::max);
    let others = median(record.samples.iter().map(|sample| sample.others_cpus));
    let share = others / record.header.origin.host.cpus as f64;
    verdict(
        "machine undisturbed",
        latest <= LATE && share <= OTHERS,
        format!(
            "other programs used {:.0} % of it in the median second; a sample was {latest:.1} s late",
            share * 100.0
        ),
        format!(
            "{:.0} %, and {LATE} s: else stalls and round trips are not the daemons'",
            OTHERS * 100.0
        ),
    )
}

fn warm_up(record: &Record) -> f64 {
    WARM_UP.min(record.header.secs as f64 / 4.0)
}

fn after_warm_up(record: &Record) -> &[Sample] {
    let warm_up = warm_up(record);
    let first = record
        .samples
        .partition_point(|sample| sample.at_s <= warm_up);
    &record.samples[first..]
}

/// Samples of seconds in which no event is to be felt.
fn quiet(record: &Record) -> impl Iterator<Item = &Sample> {
    let disturbed = |sample: &&Sample| {
        record.events.iter().any(|event| {
            let begun = event.from_s < sample.at_s + 1.0;
            begun && sample.at_s - 1.0 < event.until_s + SETTLING
        })
    };
    let steady = record
        .samples
        .iter()
        .filter(|sample| sample.at_s > SETTLING);
    steady.filter(move |sample| !disturbed(sample))
}

/// The middle one; 0 of none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    values.get(index).copied().unwrap_or(0.0)
}
