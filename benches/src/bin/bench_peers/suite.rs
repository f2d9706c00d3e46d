//! The repetitions: every contestant once in each, in an order that turns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use convoy_benches::turns::turned;
use convoy_lab::Namespace;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::Underlay;

use crate::AGENT;
use crate::args::Args;
use crate::contestants::Contestant;
use crate::report::{Report, TurnReport};
use crate::rows::Row;
use crate::turn::{KnownRates, Outcome, Turn};

/// Measures all that `args` asks for.
///
/// # Errors
/// When the lab cannot be had, or Convoy does not start at all. What fails in a turn is in the
/// report.
pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let (contestants, rows) = (args.contestants()?, args.rows());
    let (repetitions, window) = (args.repetitions(), args.window());
    let mut bed = bed(&contestants)?;

    let mut known = KnownRates::new();
    let bare_veth = Turn::new(&mut bed, None, window, &mut known).run(&rows);
    eprintln!("bare veth: {}", summary(&bare_veth));

    let mut known: BTreeMap<String, KnownRates> = BTreeMap::new();
    let mut turns = Vec::new();
    let begin = Instant::now();
    let total = repetitions as usize * contestants.len();
    for repetition in 0..repetitions {
        for contestant in turned(&contestants, repetition) {
            let name = &contestant.name;
            let known = known.entry(name.clone()).or_default();
            let turn = Turn::new(&mut bed, Some(contestant), window, known);
            let outcome = turn.run(&rows);
            let left =
                begin.elapsed() / (turns.len() as u32 + 1) * (total - turns.len() - 1) as u32;
            eprintln!(
                "[{}/{total}, {} min left] {name}: {}",
                turns.len() + 1,
                left.as_secs().div_ceil(60),
                summary(&outcome)
            );
            turns.push(TurnReport {
                repetition,
                contestant: name.clone(),
                outcome,
            });
        }
    }
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

/// The namespaces, at first with the first contestant: the others take its place.
fn bed(contestants: &[Contestant]) -> anyhow::Result<Bed> {
    let program: PathBuf = std::env::current_exe().context("find this program's file")?;
    let agent = |namespace: &Namespace| {
        let mut command = namespace.command(&program);
        command.arg(AGENT);
        command
    };
    let first = contestants.first().context("nobody takes part")?;
    let mut bed = Bed::new(&first.implementation(), agent)?;
    // Tailscale's fork does not learn where a peer is from what it hears.
    let left = bed.tunnel.left.outer(Underlay::V4);
    for peer in &mut bed.tunnel.right.config.peers {
        peer.endpoint = Some(left);
    }
    Ok(bed)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contestants;

    #[test]
    fn the_order_turns_from_one_repetition_to_the_next() {
        let all = contestants::all(Path::new("convoy"), Path::new("bin"));
        let names = |repetition| -> Vec<&str> {
            turned(&all, repetition)
                .map(|one| one.name.as_str())
                .collect()
        };
        assert_eq!(names(0)[0], "convoy");
        assert_eq!(names(1)[0], "wireguard-go");
        assert_eq!(names(1)[8], "convoy");
        assert_eq!(names(9), names(0));
        assert_eq!(names(4).len(), 9);
    }
}
