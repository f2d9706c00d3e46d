//! Judges the figures of each kind of flood.

use convoy_lab::measure::Sample;
use convoy_rows::row::{Figure, Run};
use itertools::Itertools as _;

/// The daemon, at whose port the flood is aimed: the contender that is judged. The other one is a closed port.
pub(super) const DAEMON: &str = "daemon";
pub(super) const CLOSED: &str = "closed port";
/// Scene of handshakes of a peer whose own address is forged.
pub(super) const FORGED: &str = "forged";
// Figures that are judged, and those that they are made of.
pub(super) const TCP: Figure<'static> = ("TCP", "Gbit/s");
pub(super) const KEPT: Figure<'static> = ("kept", "×");
pub(super) const REACHED: Figure<'static> = ("reached", "%");
pub(super) const SENT: Figure<'static> = ("sent", "kpps");
pub(super) const MEMORY: Figure<'static> = ("memory", "KiB");
pub(super) const LOG_LINES: Figure<'static> = ("log", "lines");
pub(super) const COOKIES: Figure<'static> = ("cookies", "");
pub(super) const UNTIL_HANDSHAKE: Figure<'static> = ("until a handshake", "s");

/// Rates of forged datagrams per second, and the seconds within which the peer must have a session.
pub(super) const HANDSHAKES: [(u32, f64); 2] = [(20_000, 6.0), (50_000, 11.0)];
/// Share of throughput that TCP must keep, relative to the same flood at a closed port; less for a flood that the
/// daemon answers: 65,536 cookie replies a second keep peers from being locked out, and cost their sends.
const LEAST_KEPT: [f64; 2] = [0.7, 0.5];
/// Percentage of the flood that the daemon must have received; otherwise the run proves nothing.
const LEAST_REACHED: f64 = 95.0;
/// Share of the requested rate that the generator must have sent.
const HELD: f64 = 0.95;
/// Limit for memory growth from the first pair of runs to the last, in KiB.
const GROWTH_KIB: f64 = 2048.0;
/// Limit for lines that both daemons log during one kind of flood.
const MOST_LINES: f64 = 10.0;
/// Begins the names of floods to which the daemon must reply with cookies: MAC1 is right.
const ANSWERED: [&str; 2] = ["replayed-handshakes", "wrong-cookies"];

/// Lists the failed checks of a run in which `kpps` were asked for.
pub(super) fn failures(run: &Run, kpps: f64) -> Vec<String> {
    let rows = run.rows.iter().filter(|row| row.contender == DAEMON);
    let of_floods = rows.map(|row| &row.scene[..]).unique().flat_map(|scene| {
        let failures = of_scene(run, scene, kpps).into_iter();
        failures.map(move |why| format!("{scene}: {why}"))
    });
    let of_handshakes = HANDSHAKES.iter().filter_map(|(rate, must)| {
        let seconds =
            run.select(|row| row.is_of(FORGED, UNTIL_HANDSHAKE) && row.at == Some((*rate).into()));
        let is_long = seconds.iter().any(|seconds| seconds > must);
        let kpps = rate / 1000;
        is_long.then(|| format!("at {kpps} kpps from its own address a peer waited > {must} s"))
    });
    of_floods.chain(of_handshakes).collect()
}

fn of_scene(run: &Run, scene: &str, kpps: f64) -> Vec<String> {
    let values = |figure| run.select(|row| row.is_of(scene, figure) && row.contender == DAEMON);
    let median = |figure| Sample::of(values(figure)).map_or(0.0, |sample| sample.median);
    let is_answered = ANSWERED.iter().any(|name| scene.starts_with(name));
    let must = LEAST_KEPT[usize::from(is_answered)];
    let (kept, sent, lines) = (median(KEPT), median(SENT), median(LOG_LINES));
    let reached = values(REACHED);
    let reached = reached.iter().sum::<f64>() / reached.len().max(1) as f64;
    let memory = values(MEMORY);
    let [first, last] = [memory.first(), memory.last()].map(|kib| kib.copied().unwrap_or(0.0));
    let has_cookies = !is_answered || values(COOKIES).iter().sum::<f64>() > 0.0;
    #[rustfmt::skip]
    let checks = [
        (kept >= must, format!("keeps {kept:.2} of its throughput, not {must}")),
        (reached >= LEAST_REACHED, format!("{reached:.1} % of it reached the daemon: inconclusive")),
        (sent >= kpps * HELD, format!("the generator sent {sent:.1} of {kpps:.1} kpps: inconclusive")),
        (last <= first + GROWTH_KIB, format!("memory grew from {first} to {last} KiB")),
        (lines <= MOST_LINES, format!("{lines} lines were logged")),
        (has_cookies, "no cookie reply was sent".to_owned()),
    ];
    let failed = checks.into_iter().filter(|(passed, _)| !passed);
    failed.map(|(_, why)| why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_rows::row::Row;

    fn run(scene: &str, kept: f64, reached: f64) -> Run {
        let mut run = Run::new(Vec::new());
        for (figure, round, value) in [
            (KEPT, 0, kept),
            (REACHED, 0, reached),
            (SENT, 0, 100.0),
            (COOKIES, 0, 1.0),
            (MEMORY, 0, 9000.0),
            (MEMORY, 1, 9500.0),
        ] {
            run.push(Row::new(scene, DAEMON, figure, round, value));
        }
        run
    }

    #[test]
    fn a_row_passes_at_half_the_rate_if_the_flood_has_reached_the_daemon() {
        let failing = [(0.49, 95.0, 100.0), (0.5, 94.9, 100.0), (0.5, 95.0, 110.0)];
        for (kept, reached, kpps) in failing {
            assert_eq!(failures(&run(ANSWERED[0], kept, reached), kpps).len(), 1);
        }
        let mut run = run(ANSWERED[0], 0.5, 95.0);
        assert!(failures(&run, 100.0).is_empty());
        run.rows.retain(|row| row.figure != COOKIES.0);
        for (figure, value) in [(MEMORY, 9000.0 + GROWTH_KIB), (LOG_LINES, MOST_LINES)] {
            run.push(Row::new(ANSWERED[0], DAEMON, figure, 2, value + 1.0));
        }
        let (rate, must) = HANDSHAKES[0];
        let late = Row::new(FORGED, "peer", UNTIL_HANDSHAKE, 0, must + 1.0);
        run.push(late.at(rate.into()));
        assert_eq!(failures(&run, 100.0).len(), 4);
    }

    #[test]
    fn a_row_without_cookies_passes_at_seventy_percent() {
        for (kept, count) in [(0.69, 1), (0.7, 0)] {
            assert_eq!(failures(&run("noise", kept, 95.0), 100.0).len(), count);
        }
    }
}
