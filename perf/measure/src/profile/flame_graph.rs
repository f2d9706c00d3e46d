//! Flame graphs: the width of a function is its share of the samples.

use std::{fs::File, io, path::Path};

use anyhow::{Context as _, Result};
use inferno::{differential, flamegraph};

use super::stacks::Stacks;

/// All samples.
pub(super) const FILE: &str = "flamegraph.svg";
/// The same, coloured by the change since another profile.
pub(super) const DIFFERENCE_FILE: &str = "flamegraph-diff.svg";

/// Draws `stacks` to the file `path`.
pub(super) fn draw(stacks: &Stacks, path: &Path) -> Result<()> {
    let (samples, event) = (stacks.total(), stacks.event());
    let subtitle = format!("{samples} samples of {event}, by thread");
    write(&stacks.text(), subtitle, path)
}

/// Draws `stacks` to the file `path`: red where the share has grown since `before`, blue where it has shrunk.
pub(super) fn draw_difference(before: &Stacks, stacks: &Stacks, path: &Path) -> Result<()> {
    let options = differential::Options {
        // The two recordings may differ in length.
        normalize: true,
        ..Default::default()
    };
    let (before, now) = (before.text(), stacks.text());
    let mut lines = Vec::new();
    differential::from_readers(options, before.as_bytes(), now.as_bytes(), &mut lines)
        .with_context(|| path.display().to_string())?;
    let subtitle = "red: a greater share than before; blue: a smaller one";
    write(&String::from_utf8_lossy(&lines), subtitle.to_owned(), path)
}

fn write(text: &str, subtitle: String, path: &Path) -> Result<()> {
    let mut options = flamegraph::Options::default();
    options.title = "Convoy".to_owned();
    options.subtitle = Some(subtitle);
    // In percent; narrower functions are invisible, and make the picture taller.
    options.min_width = 0.1;
    // The same colours in every run.
    options.deterministic = true;
    let file = File::create(path).with_context(|| path.display().to_string())?;
    flamegraph::from_lines(&mut options, text.lines(), io::BufWriter::new(file))
        .with_context(|| path.display().to_string())
}
