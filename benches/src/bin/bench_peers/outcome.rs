//! What a turn has found: the same questions to both sets.

use std::collections::BTreeMap;

use convoy_benches::peers::Series;
use serde::Serialize;

/// What all tests of a turn gave, by the rows `R` of the set.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome<R: Ord, D> {
    /// Absent where a test failed.
    pub(crate) figures: BTreeMap<R, f64>,
    /// Where the generator, not the tunnel, set the limit.
    pub(crate) generator_limited: Vec<R>,
    /// What the figures were made of.
    #[serde(flatten)]
    pub(crate) details: D,
    /// Why figures are absent.
    pub(crate) failures: Vec<String>,
}

impl<R: Ord, D: Default> Default for Outcome<R, D> {
    fn default() -> Self {
        Self {
            figures: BTreeMap::new(),
            generator_limited: Vec::new(),
            details: D::default(),
            failures: Vec::new(),
        }
    }
}

/// One contestant in one repetition.
#[derive(Debug, Serialize)]
pub(crate) struct TurnReport<R: Ord, D> {
    /// From 0.
    pub(crate) repetition: u32,
    pub(crate) contestant: String,
    pub(crate) outcome: Outcome<R, D>,
}

/// The figures of the contestant `name` in a row.
pub(crate) fn series<R: Ord, D>(
    turns: &[TurnReport<R, D>],
    name: &str,
    row: R,
    repetitions: u32,
) -> Series {
    let value = |repetition| {
        let mut turns = turns.iter();
        let turn = turns.find(|turn| turn.contestant == name && turn.repetition == repetition)?;
        turn.outcome.figures.get(&row).copied()
    };
    Series {
        name: name.to_owned(),
        values: (0..repetitions).map(value).collect(),
    }
}

/// Whether the generator set the contestant's limit in at least one repetition.
pub(crate) fn is_limited<R: Ord, D>(turns: &[TurnReport<R, D>], name: &str, row: R) -> bool {
    let mut own = turns.iter().filter(|turn| turn.contestant == name);
    own.any(|turn| turn.outcome.generator_limited.contains(&row))
}

/// A paragraph for each test that failed.
pub(crate) fn told_failures<R: Ord, D>(turns: &[TurnReport<R, D>]) -> String {
    let of_turn = |turn: &TurnReport<R, D>| {
        let (who, when) = (&turn.contestant, turn.repetition + 1);
        let failures = turn.outcome.failures.iter();
        let told =
            failures.map(|failure| format!("\nFailed: {who} in repetition {when}: {failure}\n"));
        told.collect::<String>()
    };
    turns.iter().map(of_turn).collect()
}
