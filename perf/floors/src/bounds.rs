//! The page of bounds, made from the constants.
//!
//! A bound is a constant called `MAX_…`, `MOST_…`, `LONGEST_…` or `…_LIMIT`. Its documentation says what it bounds.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::crates::Workspace;
use crate::sources::{self, Constant};

/// Place of the page in the workspace.
pub(crate) const PAGE: &str = "rust/BOUNDS.md";

const HEAD: &str = "# Bounds

Every queue, table and wait has a bound, by crate and file. `make bounds` writes this page from the constants, and a test
compares them. What happens beyond a bound is said at the constant; drops have a counter in `convoy stats`.
";

/// Directories of crates whose bounds do not matter to users.
const TOOLS: [&str; 4] = ["benches", "connlib/turn_server", "perf", "rust/fuzz"];

/// Makes the page.
///
/// # Errors
/// If a source cannot be read, or a bound has no documentation.
pub(crate) fn page(workspace: &Workspace) -> Result<String> {
    let mut page = HEAD.to_owned();
    for member in &workspace.members {
        let is_below = |it| member.root.starts_with(workspace.directory.join(it));
        if TOOLS.into_iter().any(is_below) {
            continue;
        }
        let directory = member.root.parent().context("a crate has a directory")?;
        let mut rows = String::new();
        for file in sources::read(&member.root)?.into_values() {
            let place = file.path.strip_prefix(directory)?.display();
            for bound in file.constants.iter().filter(|it| is_bound(&it.name)) {
                let Constant { name, value, .. } = bound;
                let meaning =
                    meaning(bound).with_context(|| format!("document {name} in {place}"))?;
                writeln!(rows, "| {meaning} | `{value}` | `{name}`, `{place}` |")?;
            }
        }
        if !rows.is_empty() {
            let name = &member.name;
            let head = "| what | bound | constant |\n|---|---|---|";
            write!(page, "\n## {name}\n\n{head}\n{rows}")?;
        }
    }
    Ok(page)
}

fn is_bound(name: &str) -> bool {
    let mut beginnings = ["MAX_", "MOST", "LONGEST"].iter();
    let is_limit = name.ends_with("LIMIT") && name != "HOP_LIMIT";
    is_limit || beginnings.any(|it| name.starts_with(it))
}

/// First sentence of the documentation, without links.
fn meaning(bound: &Constant) -> Option<String> {
    let sentence = bound.documentation.split(". ").next()?;
    let sentence = sentence.trim_end_matches('.').replace('|', "\\\\|");
    let sentence = sentence.replace("[`", "`").replace("`]", "`");
    (!sentence.is_empty()).then_some(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_constants() {
        let workspace = Workspace::read().unwrap();
        let written = std::fs::read_to_string(workspace.directory.join(PAGE)).unwrap();
        assert!(page(&workspace).unwrap() == written, "run `make bounds`");
    }
}
