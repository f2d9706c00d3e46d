//! Progress of a speed test: a bar on a terminal, otherwise one line per step.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);
const TEMPLATE: &str = "{bar:32} {pos}/{len}  {msg} {spinner}";

/// Progress on standard error; dropping it removes the bar.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        // INVARIANT: a constant template with known keys.
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is valid");
        let bar = ProgressBar::new(steps as u64)
            .with_style(style.progress_chars("█░"))
            .with_finish(ProgressFinish::AndClear);
        bar.enable_steady_tick(REDRAW);
        Self(bar)
    }

    /// Begins the next step.
    pub(super) fn step(&self, step: &str) {
        self.0.inc(1);
        self.0.set_message(step.to_owned());
        if self.0.is_hidden() {
            eprintln!("{step} …");
        }
    }

    /// Shows more about the current step, if there is a bar.
    pub(super) fn note(&self, note: String) {
        self.0.set_message(note);
    }
}
