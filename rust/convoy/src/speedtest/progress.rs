//! How far a speed test is: a bar on a terminal, else a line a step.

use std::fmt::Write;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

const CELLS: usize = 32;
const REDRAW: Duration = Duration::from_millis(100);

/// Progress on the standard error output; dropping it removes the bar.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Where the bar is when the current step ends, in milliseconds.
    step_end: Arc<AtomicU64>,
}

impl Progress {
    /// Progress of steps that are planned to take `total`.
    pub(super) fn new(total: Duration) -> Self {
        let step_end = Arc::new(AtomicU64::new(0));
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| bar(total, Arc::clone(&step_end)));
        Self { bar, step_end }
    }

    /// Begins a step that is planned to take `planned`.
    pub(super) fn step(&self, what: &str, planned: Duration) {
        let Some(bar) = &self.bar else {
            eprintln!("{what} …");
            return;
        };
        let begin = self.step_end.load(Ordering::Relaxed);
        bar.set_position(begin);
        bar.reset_elapsed();
        let end = begin + planned.as_millis() as u64;
        self.step_end.store(end, Ordering::Relaxed);
        bar.set_message(what.to_owned());
    }

    /// Says more about the current step, where there is a bar.
    pub(super) fn note(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar that moves by the clock within a step: a step's end is known, its parts are not.
fn bar(total: Duration, step_end: Arc<AtomicU64>) -> ProgressBar {
    let bar = ProgressBar::new(total.as_millis() as u64);
    let cells = move |state: &ProgressState, out: &mut dyn Write| {
        let now = state.pos() + state.elapsed().as_millis() as u64;
        let now = now.min(step_end.load(Ordering::Relaxed));
        let share = now as f64 / state.len().unwrap_or(1).max(1) as f64;
        // Writing into indicatif's line buffer does not fail.
        let _ = out.write_str(&cells(share));
    };
    // INVARIANT: a constant template with known keys.
    let style = ProgressStyle::with_template("{cells} {msg}")
        .expect("the template is valid")
        .with_key("cells", cells);
    bar.set_style(style);
    bar.enable_steady_tick(REDRAW);
    bar
}

fn cells(share: f64) -> String {
    let full = ((share * CELLS as f64).round() as usize).min(CELLS);
    format!(
        "{}{} {:3.0} %",
        "█".repeat(full),
        "░".repeat(CELLS - full),
        share.min(1.0) * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_at_any_share() {
        for share in [0.0, 0.5, 1.0, 1.5] {
            assert_eq!(cells(share).chars().count(), CELLS + 6, "{share}");
        }
        assert!(cells(1.5).ends_with("100 %"));
    }
}
