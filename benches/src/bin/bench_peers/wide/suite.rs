//! The wide set: its repetitions.

use convoy_benches::peers::Absent;

use super::openvpn::{self, Certificates};
use super::plan::Test;
use super::report::{Measured, Report, TurnReport};
use super::turn::{Outcome, Turn};
use super::way::Way;
use crate::args::{Args, Set};
use crate::contestants::{Contestant, Protocol};
use crate::turns::{bed, in_turns};

/// Measures the wide set, as `args` asks for it.
///
/// # Errors
/// When the lab cannot be had, or Convoy does not start at all. What fails in a turn is in the
/// report.
pub(super) fn run(args: &Args) -> anyhow::Result<Report> {
    let (asked, tests) = (args.wide_contestants()?, args.tests());
    let (repetitions, window) = (args.repetitions(Set::Wide), args.window());
    let certificates = Certificates::generate()?;
    let mut bed = bed(&asked)?;

    let mut absent = Vec::new();
    let mut contestants: Vec<Contestant> = Vec::new();
    for one in asked {
        let is_ordinary = one.protocol == Protocol::OpenVpn;
        let why = is_ordinary.then(|| openvpn::absence(&mut bed, &one, &certificates));
        if let Some(why) = why.flatten() {
            eprintln!("NOT MEASURED: {}: {why}", one.name);
            absent.push(Absent {
                name: one.name,
                why,
            });
        } else {
            contestants.push(one);
        }
    }

    let mut measure = |contestant: Option<&Contestant>| {
        let own = tests.iter().copied().filter(|test| test.is_for(contestant));
        Turn::new(Way::new(&mut bed, contestant, &certificates), window).run(own)
    };
    let bare_veth = measure(None);
    eprintln!("bare veth: {}", summary(&bare_veth));
    let mut turns = Vec::new();
    in_turns(&contestants, repetitions, |contestant, repetition| {
        let outcome = measure(Some(contestant));
        let told = summary(&outcome);
        turns.push(TurnReport {
            repetition,
            contestant: contestant.name.clone(),
            outcome,
        });
        told
    });
    let measured = Measured {
        tests,
        absent,
        bare_veth,
        turns,
    };
    let secs = window.as_secs();
    Ok(Report::new(&contestants, repetitions, secs, measured))
}

fn summary(outcome: &Outcome) -> String {
    let rows = Test::ALL.into_iter().flat_map(Test::rows);
    let figures = rows.filter_map(|row| {
        let value = outcome.figures.get(&row)?;
        let limited = outcome.generator_limited.contains(&row);
        let mark = if limited { "*" } else { "" };
        Some(format!("{} {value:.*}{mark}", row.title(), row.decimals()))
    });
    let failures = outcome.failures.iter().filter_map(|one| one.lines().next());
    let failures = failures.map(|failure| format!("FAILED {failure}"));
    figures.chain(failures).collect::<Vec<_>>().join("; ")
}
