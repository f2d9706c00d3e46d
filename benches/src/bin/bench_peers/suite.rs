//! The narrow set: its repetitions.

use std::collections::BTreeMap;

use convoy_benches::peers::Row;

use crate::args::{Args, Set};
use crate::report::{Report, TurnReport};
use crate::turn::{KnownRates, Outcome, Turn};
use crate::turns::{bed, in_turns};

/// Measures the narrow set, as `args` asks for it.
///
/// # Errors
/// When the lab cannot be had, or Convoy does not start at all. What fails in a turn is in the
/// report.
pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let (contestants, rows) = (args.contestants()?, args.rows());
    let (repetitions, window) = (args.repetitions(Set::Narrow), args.window());
    let mut bed = bed(&contestants)?;

    let mut known = KnownRates::new();
    let bare_veth = Turn::new(&mut bed, None, window, &mut known).run(&rows);
    eprintln!("bare veth: {}", summary(&bare_veth));

    let mut known: BTreeMap<String, KnownRates> = BTreeMap::new();
    let mut turns = Vec::new();
    in_turns(&contestants, repetitions, |contestant, repetition| {
        let name = &contestant.name;
        let known = known.entry(name.clone()).or_default();
        let outcome = Turn::new(&mut bed, Some(contestant), window, known).run(&rows);
        let told = summary(&outcome);
        turns.push(TurnReport {
            repetition,
            contestant: name.clone(),
            outcome,
        });
        told
    });
    let secs = window.as_secs();
    Ok(Report::new(
        &contestants,
        &rows,
        repetitions,
        secs,
        bare_veth,
        turns,
    ))
}

fn summary(outcome: &Outcome) -> String {
    let figures = Row::ALL.into_iter().filter_map(|row| {
        let value = outcome.figures.get(&row)?;
        let mark = if outcome.generator_limited.contains(&row) {
            "*"
        } else {
            ""
        };
        Some(format!("{} {value:.*}{mark}", row.title(), row.decimals()))
    });
    let failures = outcome
        .failures
        .iter()
        .filter_map(|failure| failure.lines().next());
    let failures = failures.map(|failure| format!("FAILED {failure}"));
    figures.chain(failures).collect::<Vec<_>>().join("; ")
}
