//! What all sections have in common.

use std::path::Path;

use convoy_benches::{origin::Origin, results};
use serde::de::DeserializeOwned;

/// A section about one result file.
pub(crate) struct Section<'a> {
    pub(crate) title: &'a str,
    /// What makes the file.
    pub(crate) command: &'a str,
    pub(crate) file: &'a str,
}

impl Section<'_> {
    /// The section of the file in `results`, or how to make that.
    ///
    /// # Errors
    /// Where the file is malformed: with its name and the place.
    pub(crate) fn of<T: DeserializeOwned>(
        &self,
        results: &Path,
        body: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<String> {
        let found = results::load_if_there(&results.join(self.file))?;
        let body = match &found {
            Some(result) => body(result),
            None => format!("There is no `{}` yet.\n", self.file),
        };
        let Self { title, command, .. } = self;
        Ok(format!("\n## {title}\n\n`{command}`\n\n{body}"))
    }
}

/// Where and when a result was measured, in one line.
pub(crate) fn told(origin: &Origin) -> String {
    let versions = match &origin.versions[..] {
        [] => String::new(),
        versions => format!(", {}", versions.join(", ")),
    };
    format!(
        "{} · commit {}, {}{versions}. Called as `{}`.\n",
        origin.host,
        origin.commit,
        origin.started,
        origin.command.join(" ")
    )
}

/// The rows of a table, its head first.
pub(crate) fn rows<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Vec<Vec<String>> {
    let head = head.map(str::to_owned);
    [head].into_iter().chain(rows).map(Vec::from).collect()
}
