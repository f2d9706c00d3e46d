//! Committed files that a program's output must equal.

use std::{env, fs, path::Path};

/// Number of differing lines that a failed test prints.
const SHOWN: usize = 60;

/// Compares a text with the committed file at `path`, or writes the file if the variable `update` is set to anything.
///
/// # Panics
/// If they differ, so that a test fails, or if the file cannot be written.
pub fn compare(path: &Path, text: &str, update: &str) {
    if env::var_os(update).is_some() {
        return fs::write(path, text).expect("the file can be written");
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == text,
        "{}{} differs: run this test with {update}=1, and note a change for users in CHANGELOG.md",
        difference(&committed, text),
        path.display()
    );
}

/// Returns the lines that only one text has at their place: the old ones after `-`, the new ones after `+`.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let (mut old, mut new) = (&old[..], &new[..]);
    let mut lines = Vec::new();
    while !(old.is_empty() && new.is_empty()) {
        let (removed, added) = until_same(old, new);
        lines.extend(old[..removed].iter().map(|line| format!("-{line}\n")));
        lines.extend(new[..added].iter().map(|line| format!("+{line}\n")));
        old = old.get(removed + 1..).unwrap_or_default();
        new = new.get(added + 1..).unwrap_or_default();
    }
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    match more {
        0 => lines.concat(),
        more => format!("{}… {more} more lines\n", lines.concat()),
    }
}

/// Returns how many lines of each side come before the nearest line of both.
fn until_same(old: &[&str], new: &[&str]) -> (usize, usize) {
    for distance in 0..old.len() + new.len() {
        let removed = distance.saturating_sub(new.len())..=distance.min(old.len());
        for removed in removed {
            let added = distance - removed;
            if old
                .get(removed)
                .is_some_and(|line| new.get(added) == Some(line))
            {
                return (removed, added);
            }
        }
    }
    (old.len(), new.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_differ_are_shown() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nx\ny\nc\n", "-b\n+x\n+y\n"),
            ("a\n", "a\nb\n", "+b\n"),
            ("a\na\n", "a\n", "-a\n"),
            ("a\nb\nc\nd\n", "x\nb\nc\ny\n", "-a\n+x\n-d\n+y\n"),
            ("", "a\n", "+a\n"),
            ("a\n", "b\n", "-a\n+b\n"),
        ] {
            assert_eq!(difference(old, new), expected, "{old:?} {new:?}");
        }
        let long = "a\n".repeat(SHOWN + 2);
        assert!(difference(&long, "").ends_with("-a\n… 2 more lines\n"));
    }
}
