//! How far a speed test is: a bar on a terminal, else a line a step.

use std::{cell::Cell, io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);
const TEMPLATE: &str = "{bar:32} {percent:>3} %  {msg} {spinner}";

/// Progress on the standard error output; dropping it removes the bar.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// When the current step ends, in milliseconds of the plan.
    step_end: Cell<u64>,
}

impl Progress {
    /// Progress of steps that are planned to take `total`.
    pub(super) fn new(total: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(TEMPLATE);
            let bar = ProgressBar::new(total.as_millis() as u64);
            bar.enable_steady_tick(REDRAW);
            // INVARIANT: a constant template with known keys.
            bar.with_style(style.expect("the template is valid").progress_chars("█░"))
        });
        let step_end = Cell::new(0);
        Self { bar, step_end }
    }

    /// Begins a step that is planned to take `planned`.
    pub(super) fn step(&self, step: &str, planned: Duration) {
        let begin = self
            .step_end
            .replace(self.step_end.get() + planned.as_millis() as u64);
        match &self.bar {
            Some(bar) => {
                bar.set_position(begin);
                bar.set_message(step.to_owned());
            }
            None => eprintln!("{step} …"),
        }
    }

    /// Says more about the current step, where there is a bar.
    pub(super) fn note(&self, note: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(note);
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
