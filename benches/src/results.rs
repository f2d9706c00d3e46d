//! Results: printed, written as JSON with their plots, committed, and read back by the report.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::plot::{self, Figure};

/// Directory of the committed result files, relative to the source tree's root.
pub(crate) const DIRECTORY: &str = "benches/results";
/// The page that `make report` writes.
pub(crate) const PAGE: &str = "benches/RESULTS.md";

/// A result as it is printed and shown on the page.
pub(crate) trait Report: Serialize {
    /// Markdown.
    fn text(&self) -> String;

    /// Plots, stored beside the result file.
    fn pictures(&self) -> anyhow::Result<Vec<Picture>> {
        Ok(Vec::new())
    }
}

/// A plot as an SVG document.
pub(crate) struct Picture {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) svg: String,
}

impl Picture {
    pub(crate) fn of(file: &str, figure: &Figure) -> anyhow::Result<Self> {
        Ok(Self {
            file: file.to_owned(),
            title: figure.title.clone(),
            svg: plot::svg(figure)?,
        })
    }
}

/// Prints a result. Writes it and its plots to `named`, or if that is absent and the result is `whole`, to `usual`:
/// a partial or trial run is kept only in a named file.
pub(crate) fn keep(
    result: &impl Report,
    named: Option<&Path>,
    usual: &str,
    whole: bool,
) -> anyhow::Result<()> {
    println!("{}", result.text());
    let Some(file) = file(named, usual, whole) else {
        return Ok(());
    };
    save(result, &file)?;
    for Picture {
        file: name, svg, ..
    } in result.pictures()?
    {
        save_bytes(svg.as_bytes(), &file.with_file_name(name))?;
    }
    Ok(())
}

/// The file that [`keep`] writes to.
pub(crate) fn file(named: Option<&Path>, usual: &str, whole: bool) -> Option<PathBuf> {
    let usual = whole.then(|| Path::new(DIRECTORY).join(usual));
    named.map(Path::to_owned).or(usual)
}

/// Reads a result file; `None` if it does not exist.
///
/// # Errors
/// Names the file and the offending place in it.
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

/// Writes a result file with one line per record of a list, and prints its path.
pub(crate) fn save(result: &impl Serialize, file: &Path) -> anyhow::Result<()> {
    save_bytes(lines(&serde_json::to_value(result)?).as_bytes(), file)?;
    eprintln!("all values: {}", file.display());
    Ok(())
}

/// Writes a file and creates its directory.
pub(crate) fn save_bytes(bytes: &[u8], file: &Path) -> anyhow::Result<()> {
    let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = directory.and_then(|()| fs::write(file, bytes));
    written.with_context(|| file.display().to_string())
}

/// Formats an object with one line per entry, and one per element of lists that hold objects or lists.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_has_one_line_a_record_and_a_malformed_file_is_refused_with_the_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        assert!(load::<Value>(&file).unwrap().is_none());
        let run = json!({"runs": [{"kpps": 450.5}, {"kpps": "x"}]});
        save(&run, &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let expected = "{\n\"runs\": [\n{\"kpps\":450.5},\n{\"kpps\":\"x\"}]\n}\n";
        assert_eq!(text, expected);
        assert_eq!(load(&file).unwrap(), Some(run));
        type Runs = std::collections::BTreeMap<String, Vec<serde_json::Map<String, Value>>>;
        assert!(load::<Runs>(&file).is_ok());
        type Rates = Vec<f64>;
        let refusal = format!("{:#}", load::<Rates>(&file).unwrap_err());
        assert!(refusal.contains("a.json: at .: invalid type"), "{refusal}");
    }

    #[test]
    fn only_a_whole_result_is_kept_without_a_named_file() {
        let usual = Path::new(DIRECTORY).join("a.json");
        assert_eq!(file(None, "a.json", true), Some(usual));
        assert_eq!(file(None, "a.json", false), None);
        let named = Path::new("b.json");
        assert_eq!(file(Some(named), "a.json", false), Some(named.to_owned()));
    }
}
