//! What a turn has found: the same questions to both sets.

use convoy_benches::peers::Series;
use serde::Serialize;

/// One contestant in one repetition.
#[derive(Debug, Serialize)]
pub(crate) struct TurnReport<O> {
    /// From 0.
    pub(crate) repetition: u32,
    pub(crate) contestant: String,
    pub(crate) outcome: O,
}

/// What all tests of a turn gave.
pub(crate) trait Found {
    type Row: Copy;

    /// None where the test failed.
    fn figure(&self, row: Self::Row) -> Option<f64>;

    /// Whether the generator, not the tunnel, set the limit.
    fn is_limited(&self, row: Self::Row) -> bool;

    /// Why figures are absent.
    fn failures(&self) -> &[String];
}

/// The figures of the contestant `name` in a row.
pub(crate) fn series<O: Found>(
    turns: &[TurnReport<O>],
    name: &str,
    row: O::Row,
    repetitions: u32,
) -> Series {
    let value = |repetition| {
        let mut turns = turns.iter();
        let turn = turns.find(|turn| turn.contestant == name && turn.repetition == repetition)?;
        turn.outcome.figure(row)
    };
    Series {
        name: name.to_owned(),
        values: (0..repetitions).map(value).collect(),
    }
}

/// Whether the generator set the contestant's limit in at least one repetition.
pub(crate) fn is_limited<O: Found>(turns: &[TurnReport<O>], name: &str, row: O::Row) -> bool {
    let mut own = turns.iter().filter(|turn| turn.contestant == name);
    own.any(|turn| turn.outcome.is_limited(row))
}

/// A paragraph for each test that failed.
pub(crate) fn told_failures<O: Found>(turns: &[TurnReport<O>]) -> String {
    let of_turn = |turn: &TurnReport<O>| {
        let (who, when) = (&turn.contestant, turn.repetition + 1);
        let failures = turn.outcome.failures().iter();
        let told =
            failures.map(|failure| format!("\nFailed: {who} in repetition {when}: {failure}\n"));
        told.collect::<String>()
    };
    turns.iter().map(of_turn).collect()
}
