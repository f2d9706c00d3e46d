//! The part of the README that the result files say.

use std::path::Path;

use anyhow::Context as _;
use convoy_benches::{markdown, peers, results};

use crate::peers::{FILE, Peers};

const BEGIN: &str = "<!-- What peers.json says, by make report -->\n";
const END: &str = "<!-- So much -->\n";

/// The README with Convoy beside the best of its peers, where those were measured.
///
/// # Errors
/// Where the result file is malformed, or `readme` has no place for it.
pub(crate) fn updated(readme: &str, results: &Path) -> anyhow::Result<String> {
    let found: Option<Peers> = results::load_if_there(&results.join(FILE))?;
    let Some(found) = found else {
        return Ok(readme.to_owned());
    };
    let (before, rest) = readme
        .split_once(BEGIN)
        .with_context(|| format!("no line {BEGIN:?}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("no line {END:?} behind {BEGIN:?}"))?;
    let Peers { measured, rows } = &found;
    let names: Vec<_> = measured
        .contestants
        .iter()
        .map(|one| &one.name[..])
        .collect();
    let table = markdown::table(&peers::brief(&names, rows));
    let told = measured.told();
    Ok(format!("{before}{BEGIN}{told}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::measured::tests::HEAD;

    fn measured() -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let json = format!(r#"{{{HEAD}, "rows": []}}"#);
        fs::write(directory.path().join(FILE), json).unwrap();
        directory
    }

    #[test]
    fn what_was_measured_is_put_between_its_marks_again_and_again() {
        let results = measured();
        let readme = format!("before\n{BEGIN}old\n{END}after\n");
        let new = updated(&readme, results.path()).unwrap();
        assert!(
            new.starts_with("before\n") && new.ends_with("after\n"),
            "{new}"
        );
        assert!(new.contains("gotatun (1)") && !new.contains("old"), "{new}");
        assert_eq!(updated(&new, results.path()).unwrap(), new);
    }

    #[test]
    fn without_results_it_stays_and_without_marks_it_is_an_error() {
        assert_eq!(updated("any", Path::new("/nowhere")).unwrap(), "any");
        let error = updated("any", measured().path()).unwrap_err();
        assert!(
            error.to_string().contains("What peers.json says"),
            "{error}"
        );
    }
}
