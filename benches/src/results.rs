//! Result files: JSON that is written once, committed, and read again by the report.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Where result files are committed, from the root of the source tree.
pub(crate) const DIRECTORY: &str = "benches/results";
/// The page that `make report` makes of them, likewise.
pub(crate) const PAGE: &str = "benches/RESULTS.md";

/// Where a result is written: to `named`, or to `name` in the results if it is `whole`; a part or a trial is
/// kept only where a file is named.
pub(crate) fn file(named: Option<&Path>, name: &str, whole: bool) -> Option<PathBuf> {
    let usual = || whole.then(|| Path::new(DIRECTORY).join(name));
    named.map(Path::to_owned).or_else(usual)
}

/// Reads a result file; none where there is none.
///
/// # Errors
/// Names the file, and the place in it that is wrong.
pub(crate) fn load<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<T>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| file.display().to_string())?,
    };
    let mut json = serde_json::Deserializer::from_str(&text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        anyhow::anyhow!("{}: at {}: {}", file.display(), error.path(), error.inner())
    })?;
    json.end().with_context(|| file.display().to_string())?;
    Ok(Some(value))
}

/// Writes a result file, one line for each record in a list, and prints its path.
pub(crate) fn save(result: &impl Serialize, file: &Path) -> anyhow::Result<()> {
    save_bytes(lines(&serde_json::to_value(result)?).as_bytes(), file)?;
    eprintln!("every single value: {}", file.display());
    Ok(())
}

/// Writes a plot or a table of a result.
pub(crate) fn save_bytes(bytes: &[u8], file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = directory.and_then(|()| fs::write(file, bytes));
    written.with_context(|| file.display().to_string())
}

/// An object with a line for each entry, and for each element of lists of objects and lists in it.
fn lines(result: &Value) -> String {
    let Value::Object(entries) = result else {
        return format!("{result}\n");
    };
    let entry = |(key, value): (&String, &Value)| match value {
        Value::Array(list) if list.iter().any(|one| one.is_object() || one.is_array()) => {
            let list: Vec<_> = list.iter().map(Value::to_string).collect();
            format!("\"{key}\": [\n{}]", list.join(",\n"))
        }
        value => format!("\"{key}\": {value}"),
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    format!("{{\n{}\n}}\n", entries.join(",\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Run = BTreeMap<String, Vec<BTreeMap<String, f64>>>;

    fn loaded(text: &str) -> anyhow::Result<Option<Run>> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        fs::write(&file, text).unwrap();
        load(&file)
    }

    #[test]
    fn a_result_has_one_line_a_record_and_reads_back() {
        let run = Run::from([(
            "runs".to_owned(),
            vec![BTreeMap::from([("kpps".to_owned(), 450.5)]); 2],
        )]);
        let text = lines(&serde_json::to_value(&run).unwrap());
        assert_eq!(
            text,
            "{\n\"runs\": [\n{\"kpps\":450.5},\n{\"kpps\":450.5}]\n}\n"
        );
        assert_eq!(loaded(&text).unwrap().unwrap(), run);
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_place() {
        let refusal = |text| format!("{:#}", loaded(text).unwrap_err());
        let wrong = refusal(r#"{"runs": [{"kpps": 1.0}, {"kpps": "x"}]}"#);
        assert!(
            wrong.contains("a.json: at runs[1].kpps: invalid type"),
            "{wrong}"
        );
        assert!(refusal(r#"{"runs": []} {}"#).contains("trailing characters"));
        assert!(refusal(r#"{"runs": ["#).contains("line 1"));
    }

    #[test]
    fn only_a_whole_result_is_kept_without_a_named_file() {
        let usual = Path::new(DIRECTORY).join("a.json");
        assert_eq!(file(None, "a.json", true), Some(usual));
        assert_eq!(file(None, "a.json", false), None);
        let named = Path::new("b.json");
        assert_eq!(file(Some(named), "a.json", false), Some(named.to_owned()));
        assert!(
            load::<Run>(Path::new("/nowhere/at/all.json"))
                .unwrap()
                .is_none()
        );
    }
}
