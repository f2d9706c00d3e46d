//! Names of the tests to run of one target.

use std::{fs, path::Path, process::Command, str::FromStr};

use anyhow::{Context as _, Error, Result, ensure};

/// A target and the tests of it to run.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) target: String,
    /// Names of tests, and of modules, which end in `::`.
    names: Vec<String>,
}

impl Selection {
    /// Returns the names of the selected tests out of `all` of the target's. A module without tests, which is reported as
    /// a test that did not run, is among them.
    pub(crate) fn tests(&self, all: &[String]) -> Vec<String> {
        let select = |name: &String| -> Vec<String> {
            let within = all.iter().filter(|test| test.starts_with(name.as_str()));
            let tests: Vec<_> = within.cloned().collect();
            match name.ends_with("::") && !tests.is_empty() {
                true => tests,
                false => vec![name.clone()],
            }
        };
        self.names.iter().flat_map(select).collect()
    }

    /// Returns the names that stand for no test among `all`.
    pub(crate) fn unknown(&self, all: &[String]) -> Vec<String> {
        let mut selected = self.tests(all);
        selected.retain(|name| !all.contains(name));
        selected
    }
}

/// Returns the names of the tests of the binary at `program`.
///
/// # Errors
/// If the binary cannot list its tests.
pub(crate) fn list(program: &Path) -> Result<Vec<String>> {
    let shown = program.display();
    let listing = Command::new(program)
        .args(["--list", "--format=terse", "--include-ignored"])
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    ensure!(listing.status.success(), "{shown} --list failed");
    Ok(tests_in(&String::from_utf8_lossy(&listing.stdout)))
}

fn tests_in(listing: &str) -> Vec<String> {
    let lines = listing.lines();
    let tests = lines.filter_map(|line| line.strip_suffix(": test"));
    tests.map(str::to_owned).collect()
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
    let text = lines.lines().filter_map(|line| line.split('#').next());
    let names = text.map(|line| line.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_or_a_comment() {
        let lines = "# Life.\nlifecycle::starts\n\n  uapi::get # reads\n";
        assert_eq!(names(lines), ["lifecycle::starts", "uapi::get"]);
    }

    #[test]
    fn a_module_stands_for_its_tests() {
        let wanted = Selection {
            target: String::new(),
            names: names("b::\na::one\nc::"),
        };
        let all = tests_in("a::one: test\na::two: test\nb::one: test\nb::c::two: test\n\n");
        let selected = wanted.tests(&all);
        assert_eq!(selected, ["b::one", "b::c::two", "a::one", "c::"]);
        assert_eq!(wanted.unknown(&all), ["c::"]);
    }
}
