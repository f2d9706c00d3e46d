//! Names of the tests to run of one target.

use std::{fs, str::FromStr};

use anyhow::{Context as _, Error, ensure};

/// A target and the tests of it to run.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) target: String,
    pub(crate) names: Vec<String>,
}

impl Selection {
    /// Returns the arguments that make libtest run these tests and no others.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let exact = ["--exact".to_owned()];
        exact.into_iter().chain(self.names.clone()).collect()
    }
}

/// Reads `TARGET=FILE`. A line of the file is the name of a test, empty, or a comment after `#`.
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
    use super::names;

    #[test]
    fn a_line_is_a_name_or_a_comment() {
        let lines = "# Life.\nlifecycle::starts\n\n  uapi::get # reads\n";
        assert_eq!(names(lines), ["lifecycle::starts", "uapi::get"]);
    }
}
