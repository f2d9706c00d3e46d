//! Names of the tests to run of one target.

use std::{collections::BTreeSet, fs, path::Path, process::Command, str::FromStr};

use anyhow::{Context as _, Error, Result, ensure};

/// A target and the tests of it to run.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) target: String,
    /// Names of tests, and of modules, which end in `::`.
    names: Vec<String>,
}

impl Selection {
    /// Returns the names of the selected tests, given all that the binary at `program` has.
    ///
    /// # Errors
    /// If the binary cannot list its tests.
    pub(crate) fn tests(&self, program: &Path) -> Result<Vec<String>> {
        Ok(select(&self.names, &list(program)?))
    }

    /// Returns the names that stand for no test of the binary at `program`.
    ///
    /// # Errors
    /// If the binary cannot list its tests.
    pub(crate) fn unknown(&self, program: &Path) -> Result<Vec<String>> {
        Ok(unknown(&self.names, &list(program)?))
    }
}

/// Returns the tests that the binary at `program` lists, as libtest does.
fn list(program: &Path) -> Result<String> {
    let listing = Command::new(program)
        .args(["--list", "--format=terse", "--include-ignored"])
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(
        listing.status.success(),
        "{} --list failed",
        program.display()
    );
    Ok(String::from_utf8_lossy(&listing.stdout).into_owned())
}

/// Returns the names of the tests in a listing of libtest.
fn tests_in(listing: &str) -> impl Iterator<Item = &str> {
    listing
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
}

/// Replaces modules in `names` by their tests. `listing` is what libtest lists.
fn select(names: &[String], listing: &str) -> Vec<String> {
    let all: Vec<_> = tests_in(listing).collect();
    let select = |name: &String| -> Vec<String> {
        let within = all.iter().filter(|test| test.starts_with(name.as_str()));
        let tests: Vec<_> = within.map(|&test| test.to_owned()).collect();
        // A module without tests is reported as a test that did not run.
        if name.ends_with("::") && !tests.is_empty() {
            tests
        } else {
            vec![name.clone()]
        }
    };
    names.iter().flat_map(select).collect()
}

/// Returns those of `names` that stand for no test in `listing`.
fn unknown(names: &[String], listing: &str) -> Vec<String> {
    let all: BTreeSet<_> = tests_in(listing).collect();
    let mut selected = select(names, listing);
    selected.retain(|name| !all.contains(name.as_str()));
    selected
}

/// Returns the arguments that make libtest run these tests and no others.
pub(crate) fn arguments(tests: &[String]) -> Vec<String> {
    let exact = ["--exact".to_owned()];
    exact.into_iter().chain(tests.iter().cloned()).collect()
}

/// Reads `TARGET=FILE`. A line of the file is the name of a test, the name of a module followed by `::`,
/// empty, or a comment after `#`.
impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (target, file) = text.split_once('=').context("not TARGET=FILE")?;
        let lines = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let names = names(&lines);
        ensure!(!names.is_empty(), "{file} names no test");
        Ok(Self {
            target: target.to_owned(),
            names,
        })
    }
}

fn names(lines: &str) -> Vec<String> {
    let text = lines
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    text.filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{names, select, unknown};

    #[test]
    fn a_line_is_a_name_or_a_comment() {
        let lines = "# Life.\nlifecycle::starts\n\n  uapi::get # reads\n";
        assert_eq!(names(lines), ["lifecycle::starts", "uapi::get"]);
    }

    #[test]
    fn a_module_stands_for_its_tests() {
        let wanted = ["b::".to_owned(), "a::one".to_owned(), "c::".to_owned()];
        let listing = "a::one: test\na::two: test\nb::one: test\nb::c::two: test\n\n";
        assert_eq!(
            select(&wanted, listing),
            ["b::one", "b::c::two", "a::one", "c::"]
        );
        assert_eq!(unknown(&wanted, listing), ["c::"]);
    }
}
