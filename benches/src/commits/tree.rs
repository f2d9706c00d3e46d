//! A built commit: its stage benches and its daemon.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use convoy_rows::origin::commit_of;

use crate::programs::{self, first_line};

/// The other commit's files; all of them may be deleted.
const DIRECTORY: &str = "target/compare";
const BENCH: &str = "stages";

/// A built commit.
pub(super) struct Tree {
    pub(super) commit: String,
    /// The program that holds all stage benches.
    pub(super) stages: PathBuf,
    /// The daemon; built only to measure the tunnel.
    pub(super) convoy: PathBuf,
}

impl Tree {
    /// This tree, with its uncommitted changes.
    pub(super) fn here(with_convoy: bool) -> Result<Self> {
        Self::build(Path::new("."), Path::new("target"), with_convoy)
    }

    /// The commit `reference`, in a worktree of its own.
    pub(super) fn of(reference: &str, with_convoy: bool) -> Result<Self> {
        let directory = std::path::absolute(DIRECTORY)?;
        let tree = directory.join("tree");
        let object = format!("{reference}^{{commit}}");
        let full = first_line(Command::new("git").args(["rev-parse", "--verify", &object]))
            .with_context(|| format!("there is no commit {reference}"))?;
        let mut git = Command::new("git");
        // Without this file git would check out into the surrounding repository and lose uncommitted changes.
        if tree.join(".git").is_file() {
            git.current_dir(&tree);
            git.args(["checkout", "--quiet", "--force", "--detach"]);
        } else {
            // git still knows a worktree that was deleted by hand.
            git.args(["worktree", "add", "--force", "--quiet", "--detach"]);
            git.arg(&tree);
        }
        first_line(git.arg(&full))?;
        // A target directory of its own: otherwise the two programs would overwrite each other.
        let built = Self::build(&tree, &directory.join("build"), with_convoy);
        let hint = || format!("build {reference} (does it have `cargo bench --bench {BENCH}`?)");
        built.with_context(hint)
    }

    fn build(tree: &Path, target: &Path, with_convoy: bool) -> Result<Self> {
        let commit = commit_of(tree)?;
        eprintln!("building {commit}");
        let target = std::path::absolute(target)?;
        if with_convoy {
            let program = ["build", "--release", "-p", "convoy", "--bin", "convoy"];
            cargo(tree, &target, &program)?;
        }
        let bench = ["bench", "--no-run", "--bench", BENCH, "-p", "convoy-stages"];
        let messages = cargo(tree, &target, &bench)?;
        Ok(Self {
            stages: program_in(&messages).context("cargo reports no bench program")?,
            convoy: target.join("release/convoy"),
            commit,
        })
    }
}

/// Runs Cargo in `tree` and returns its messages.
fn cargo(tree: &Path, target: &Path, arguments: &[&str]) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(tree);
    cargo.args(["--locked", "--message-format=json-render-diagnostics"]);
    cargo.env("CARGO_TARGET_DIR", target);
    programs::output(cargo.stderr(Stdio::inherit()))
}

/// Finds a program in Cargo's `--message-format=json`; a library of the same name has no executable.
fn program_in(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_bench = message["target"]["name"] == BENCH;
        let executable = message["executable"].as_str().filter(|_| is_bench)?;
        Some(executable.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_the_messages_and_a_library_of_its_name_is_none() {
        let messages = r#"{"target":{"name":"stages"},"executable":null}
            {"target":{"name":"other"},"executable":"/a/other"}
            {"target":{"name":"stages"},"executable":"/a/stages-1"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(program_in(messages), Some("/a/stages-1".into()));
    }
}
