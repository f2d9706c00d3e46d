//! The machine, versions and command line behind a result.

use std::{env, path::Path, process::Command};

use anyhow::{Result, ensure};
use convoy_lab::measure::Host;
use serde::{Deserialize, Serialize};

/// Directory of the committed result files, relative to the source tree's root.
pub const DIRECTORY: &str = "benches/results";
/// The page that `make report` writes.
pub const PAGE: &str = "benches/RESULTS.md";

/// Where a result comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The machine.
    pub host: Host,
    /// Commit of the source tree; ends in `-dirty` if that had uncommitted changes.
    pub commit: String,
    /// UTC.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// Versions of the programs that took part, as they print them.
    pub versions: Vec<String>,
    /// Contenders that are absent and tests that failed, with the reasons; and verdicts.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Origin {
    /// Origin of a run of this program that starts now.
    pub(crate) fn new(versions: Vec<String>) -> Self {
        let now = jiff::Timestamp::now();
        Self {
            host: Host::of_this_machine(),
            commit: commit_of(Path::new(".")).unwrap_or_else(|_| "unknown".to_owned()),
            started: now.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            command: env::args().collect(),
            versions,
            notes: Vec::new(),
        }
    }

    /// Machine, commit and time in one line, for plots.
    pub fn line(&self) -> String {
        format!("{} · {} · {}", self.host, self.commit, self.started)
    }

    /// The same for the page, with versions and the command line.
    pub fn paragraph(&self) -> String {
        let (host, commit, started) = (&self.host, &self.commit, &self.started);
        let versions = self.versions.iter().map(|version| format!(", {version}"));
        let (versions, command) = (versions.collect::<String>(), self.command.join(" "));
        format!("{host} · commit {commit}, {started}{versions}. Called as `{command}`.\n")
    }
}

/// The commit of a source tree, with `-dirty` if anything but the results has changed.
///
/// # Errors
/// Outside a repository, or without git.
pub fn commit_of(tree: &Path) -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let output = git.arg("-C").arg(tree).args(arguments).output()?;
        ensure!(output.status.success(), "git ended with {}", output.status);
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(printed.lines().next().unwrap_or_default().to_owned())
    };
    let commit = git(&["describe", "--always", "--abbrev=12", "--exclude=*"])?;
    let results = format!(":(top,exclude){DIRECTORY}");
    let page = format!(":(top,exclude){PAGE}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(&[&status[..], &[":/", &results, &page]].concat())?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Ok(commit + mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn a_tree_is_dirty_by_its_sources_and_not_by_new_results() {
        let tree = tempfile::tempdir().unwrap();
        let git = |arguments: &str| {
            let mut git = Command::new("git");
            git.arg("-C").arg(tree.path());
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            assert!(git.args(arguments.split(' ')).status().unwrap().success());
        };
        let source = tree.path().join("source");
        let result = tree.path().join(DIRECTORY).join("a.jsonl");
        let write = |file: &Path, text: &str| row::write(text.as_bytes(), file).unwrap();
        write(&source, "1");
        write(&result, "1");
        for command in ["init --quiet", "add .", "commit --quiet -m first"] {
            git(command);
        }
        let clean = commit_of(tree.path()).unwrap();
        assert_eq!(clean.len(), 12, "{clean}");
        write(&result, "2");
        assert_eq!(commit_of(tree.path()).unwrap(), clean);
        write(&source, "2");
        assert_eq!(commit_of(tree.path()).unwrap(), clean + "-dirty");
        assert!(commit_of(&tree.path().join("none")).is_err());
    }
}
