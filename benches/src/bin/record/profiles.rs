//! What is kept of the profiles of a comparison: the shares of each side, and one picture.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, ensure};
use convoy_benches::results;
use serde_json::{Map, Value};

/// What a profile writes for programs (`perf/README.md`).
const SHARES: &str = "shares.json";
/// The side whose picture is kept: as Convoy runs where the kernel has everything.
const PICTURED: &str = "gso";
/// What is committed stays small.
const MOST_BYTES: u64 = 1_000_000;

/// The shares of every profile in `directory`, by the name of its own directory.
pub(crate) fn shares(directory: &Path) -> anyhow::Result<Map<String, Value>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut shares = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let found = results::load_if_there::<Value>(&entry.path().join(SHARES))?;
        shares.extend(found.map(|found| (entry.file_name().to_string_lossy().into_owned(), found)));
    }
    ensure!(
        !shares.is_empty(),
        "there is no profile in {}",
        directory.display()
    );
    Ok(shares.into_iter().collect())
}

/// Copies the flame graph to the result file's directory.
pub(crate) fn keep_flame_graph(directory: &Path, result: &Path) -> anyhow::Result<()> {
    let from = directory.join(PICTURED).join("flamegraph.svg");
    let to = result.with_file_name(format!("flamegraph-{PICTURED}.svg"));
    let length = fs::metadata(&from).with_context(|| from.display().to_string())?;
    ensure!(
        length.len() < MOST_BYTES,
        "{} has {} bytes, too many to commit",
        from.display(),
        length.len()
    );
    fs::copy(&from, &to).with_context(|| to.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_keeps_its_shares_and_one_its_picture() {
        let outer = tempfile::tempdir().unwrap();
        for side in ["gso", "no-gso", "empty"] {
            fs::create_dir(outer.path().join(side)).unwrap();
        }
        assert!(shares(outer.path()).is_err(), "nothing is there yet");
        for (side, share) in [("gso", "0.1"), ("no-gso", "0.3")] {
            let file = outer.path().join(side).join(SHARES);
            fs::write(file, format!(r#"{{"all": {{"udp_sendmsg": {share}}}}}"#)).unwrap();
        }
        let kept = shares(outer.path()).unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["gso", "no-gso"]);
        assert_eq!(kept["no-gso"]["all"]["udp_sendmsg"], 0.3);

        let result = outer.path().join("profile.json");
        assert!(keep_flame_graph(outer.path(), &result).is_err());
        fs::write(outer.path().join("gso/flamegraph.svg"), "<svg/>").unwrap();
        keep_flame_graph(outer.path(), &result).unwrap();
        let kept = outer.path().join("flamegraph-gso.svg");
        assert_eq!(fs::read_to_string(kept).unwrap(), "<svg/>");
    }

    #[test]
    fn a_picture_that_is_too_large_is_refused_with_its_size() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join(PICTURED)).unwrap();
        let picture = vec![b' '; MOST_BYTES as usize];
        fs::write(outer.path().join("gso/flamegraph.svg"), picture).unwrap();
        let refusal = keep_flame_graph(outer.path(), &outer.path().join("profile.json"));
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("has 1000000 bytes"), "{refusal}");
    }
}
