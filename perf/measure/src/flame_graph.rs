//! Flame graphs: the width of a function is its share of the samples.

use std::{fs::File, io, path::Path};

use inferno::{differential, flamegraph};

use crate::{ProfileError, Stacks};

/// All samples.
pub(crate) const FILE: &str = "flamegraph.svg";
/// All samples, coloured by what has changed since another profile.
pub(crate) const DIFFERENCE_FILE: &str = "flamegraph-diff.svg";

/// Draws `stacks` into `path`.
pub(crate) fn draw(stacks: &Stacks, path: &Path) -> Result<(), ProfileError> {
    let lines: Vec<_> = stacks.lines().collect();
    let subtitle = format!(
        "{} samples of {}, by thread",
        stacks.total(),
        stacks.event()
    );
    write(&lines, subtitle, path)
}

/// Draws `stacks` into `path`: red what has become more since `before`, blue what has become less.
pub(crate) fn draw_difference(
    before: &Stacks,
    stacks: &Stacks,
    path: &Path,
) -> Result<(), ProfileError> {
    let text = |stacks: &Stacks| stacks.lines().map(|line| line + "\n").collect::<String>();
    let (before, now) = (text(before), text(stacks));
    let options = differential::Options {
        // The two may have been recorded for different times.
        normalize: true,
        ..Default::default()
    };
    let mut lines = Vec::new();
    differential::from_readers(options, before.as_bytes(), now.as_bytes(), &mut lines)
        .map_err(ProfileError::Drawing)?;
    let lines = String::from_utf8_lossy(&lines);
    let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    let subtitle = "red: a greater share than before; blue: a smaller one";
    write(&lines, subtitle.to_owned(), path)
}

fn write(lines: &[String], subtitle: String, path: &Path) -> Result<(), ProfileError> {
    let mut options = flamegraph::Options::default();
    options.title = "Convoy".to_owned();
    options.subtitle = Some(subtitle);
    // In percent; what is narrower cannot be seen, and makes the picture high.
    options.min_width = 0.1;
    // Colours tell user code and the kernel apart no better than names do; the same each time.
    options.deterministic = true;
    let file = File::create(path).map_err(ProfileError::file(path))?;
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut options, lines, io::BufWriter::new(file))
        .map_err(ProfileError::Drawing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn stacks(function: &str) -> Stacks {
        let text = format!("tunnel 1/2 1.5: 100 cycles: \n\t1 {function} (a)\n\n");
        Stacks::of(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_flame_graph_names_threads_and_functions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        draw(&stacks("<a as b<[u8; 4]>>::c"), &path).unwrap();
        let svg = fs::read_to_string(path).unwrap();
        for part in [
            "<svg",
            "tunnel",
            "&lt;a as b&lt;[u8, 4]&gt;&gt;::c",
            "1 samples of cycles",
        ] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn a_difference_shows_what_is_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DIFFERENCE_FILE);
        draw_difference(&stacks("old"), &stacks("new"), &path).unwrap();
        let svg = fs::read_to_string(path).unwrap();
        assert!(svg.contains("new") && svg.contains("+100"), "{svg}");
    }
}
