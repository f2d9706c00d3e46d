//! Who is measured when: every contestant once in each repetition, in an order that turns.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use convoy_benches::turns::turned;
use convoy_lab::Namespace;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::Underlay;

use crate::AGENT;
use crate::contestants::Contestant;

/// Calls `turn` for each contestant in each repetition; what it returns is told with the time that
/// is left.
pub(crate) fn in_turns(
    contestants: &[Contestant],
    repetitions: u32,
    mut turn: impl FnMut(&Contestant, u32) -> String,
) {
    let begin = Instant::now();
    let total = repetitions * contestants.len() as u32;
    let mut done = 0;
    for repetition in 0..repetitions {
        for contestant in turned(contestants, repetition) {
            let told = turn(contestant, repetition);
            done += 1;
            let left = begin.elapsed() / done * (total - done);
            let minutes = left.as_secs().div_ceil(60);
            let name = &contestant.name;
            eprintln!("[{done}/{total}, {minutes} min left] {name}: {told}");
        }
    }
}

/// The namespaces, at first with the first contestant: the others take its place.
pub(crate) fn bed(contestants: &[Contestant]) -> anyhow::Result<Bed> {
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
