//! A commit, built: its stage benches and its program.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::origin::{commit, first_line_of};
use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Files of the other commit; all of them may be deleted.
const DIRECTORY: &str = "target/compare";
const PACKAGE: &str = "convoy-stages";
const BENCH: &str = "stages";

/// A built commit.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) commit: String,
    /// The program of all stage benches.
    pub(super) stages: PathBuf,
    /// The daemon, where the tunnel is measured.
    pub(super) convoy: Option<PathBuf>,
}

/// A line of Cargo's `--message-format=json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

impl Tree {
    /// This tree, with whatever is not committed.
    pub(super) fn here(with_convoy: bool) -> anyhow::Result<Self> {
        Self::build(commit()?, Path::new("."), Path::new("target"), with_convoy)
    }

    /// The commit `reference`, in a worktree of its own.
    pub(super) fn of(reference: &str, with_convoy: bool) -> anyhow::Result<Self> {
        let directory = std::path::absolute(DIRECTORY)?;
        let tree = directory.join("tree");
        let object = format!("{reference}^{{commit}}");
        let full = first_line_of(Command::new("git").args(["rev-parse", "--verify", &object]))
            .with_context(|| format!("there is no commit {reference}"))?;
        // Without this file git would check out the repository around it, and lose uncommitted changes.
        if tree.join(".git").is_file() {
            let mut checkout = Command::new("git");
            checkout.current_dir(&tree);
            done(checkout.args(["checkout", "--quiet", "--force", "--detach", &full]))?;
        } else {
            let mut add = Command::new("git");
            // One that was deleted by hand is still known.
            add.args(["worktree", "add", "--force", "--quiet", "--detach"]);
            done(add.arg(&tree).arg(&full))?;
        }
        let short = full.get(..12).unwrap_or(&full).to_owned();
        // A directory of its own: programs of the two would replace each other.
        Self::build(short, &tree, &directory.join("build"), with_convoy).with_context(|| {
            format!("build {reference} (does it have `cargo bench --bench {BENCH}`?)")
        })
    }

    fn build(
        commit: String,
        tree: &Path,
        target: &Path,
        with_convoy: bool,
    ) -> anyhow::Result<Self> {
        eprintln!("building {commit}");
        let bench = ["bench", "--no-run", "--bench", BENCH, "-p", PACKAGE];
        let program = ["build", "--release", "-p", "convoy", "--bin", "convoy"];
        let convoy = with_convoy.then(|| built(tree, target, &program, "convoy"));
        Ok(Self {
            stages: built(tree, target, &bench, BENCH)?,
            convoy: convoy.transpose()?,
            commit,
        })
    }
}

/// The compiler of this tree, which `rust-toolchain.toml` names.
pub(super) fn compiler() -> anyhow::Result<String> {
    first_line_of(Command::new("rustc").arg("--version"))
}

/// Runs Cargo in `tree`, and returns where the program `name` lies.
fn built(tree: &Path, target: &Path, arguments: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    let target = std::path::absolute(target)?;
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--locked", "--message-format=json-render-diagnostics"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    ensure!(
        output.status.success(),
        "cargo ended with {}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    program_in(&text, name).with_context(|| format!("cargo names no program {name}"))
}

fn program_in(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let is_asked = |message: &Message| message.target.as_ref().is_some_and(|t| t.name == name);
    let mut programs = messages
        .filter(is_asked)
        .filter_map(|message| message.executable);
    programs.next()
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    first_line_of(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_the_messages_and_a_library_of_its_name_is_none() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"stages"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/a/other"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"stages"},"executable":"/a/stages-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = |name| program_in(messages, name);
        assert_eq!(found("stages"), Some("/a/stages-1".into()));
        assert_eq!(found("convoy"), None);
    }
}
