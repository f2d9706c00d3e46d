//! Judges the figures of each kind of flood.

use convoy_lab::measure::Sample;
use convoy_rows::row::Run;

use super::lockout;

/// The contender that is judged: the daemon, at whose port the flood is aimed.
pub(super) const DAEMON: &str = "daemon";
// Figures that are judged, with their units.
pub(super) const KEPT: (&str, &str) = ("kept", "×");
pub(super) const REACHED: (&str, &str) = ("reached", "%");
pub(super) const SENT: (&str, &str) = ("sent", "kpps");
pub(super) const MEMORY: (&str, &str) = ("memory", "KiB");
pub(super) const LOG_LINES: (&str, &str) = ("log", "lines");
pub(super) const COOKIES: (&str, &str) = ("cookies", "");

/// Share of throughput that TCP must keep, relative to the same flood at a closed port.
const LEAST_KEPT: f64 = 0.7;
/// The same for a flood that the daemon answers: 65,536 cookie replies a second keep peers from being locked out,
/// and cost their sends.
const LEAST_KEPT_ANSWERING: f64 = 0.5;
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
    let mut scenes: Vec<&str> = Vec::new();
    for row in run.rows.iter().filter(|row| row.contender == DAEMON) {
        if !scenes.contains(&&row.scene[..]) {
            scenes.push(&row.scene);
        }
    }
    let failures = scenes.into_iter().flat_map(|scene| {
        let failures = of_scene(run, scene, kpps).into_iter();
        failures.map(move |why| format!("{scene}: {why}"))
    });
    failures.chain(lockout::failures(run)).collect()
}

fn of_scene(run: &Run, scene: &str, kpps: f64) -> Vec<String> {
    let values = |(figure, unit): (&str, &str)| -> Vec<f64> {
        let values = run.by_round(|row| {
            let is_it = row.figure == figure && row.unit == unit;
            row.scene == scene && row.contender == DAEMON && is_it
        });
        values.into_values().collect()
    };
    let median = |figure| Sample::of(values(figure)).map_or(0.0, |sample| sample.median);
    let is_answered = ANSWERED.iter().any(|name| scene.starts_with(name));
    let must = if is_answered {
        LEAST_KEPT_ANSWERING
    } else {
        LEAST_KEPT
    };
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
        let figures = [
            (KEPT, kept),
            (REACHED, reached),
            (SENT, 100.0),
            (COOKIES, 1.0),
        ];
        for (figure, value) in figures {
            run.push(Row::new(scene, DAEMON, figure, 0, value));
        }
        for (round, kib) in [(0, 9000.0), (1, 9500.0)] {
            run.push(Row::new(scene, DAEMON, MEMORY, round, kib));
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
        let add = [
            (MEMORY, 9000.0 + GROWTH_KIB + 1.0),
            (LOG_LINES, MOST_LINES + 1.0),
        ];
        for (figure, value) in add {
            run.push(Row::new(ANSWERED[0], DAEMON, figure, 2, value));
        }
        assert_eq!(failures(&run, 100.0).len(), 3);
    }

    #[test]
    fn a_row_without_cookies_passes_at_seventy_percent() {
        for (kept, count) in [(0.69, 1), (0.7, 0)] {
            assert_eq!(failures(&run("noise", kept, 95.0), 100.0).len(), count);
        }
    }
}
