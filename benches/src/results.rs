//! Result files: JSON that is written once, committed, and read again by the report.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Where result files are committed, from the root of the source tree.
pub const DIRECTORY: &str = "benches/results";
/// What `make report` makes of them, likewise.
pub const PAGE: &str = "benches/RESULTS.md";

/// Why a result file could not be read or written.
#[derive(Debug, Error)]
pub enum ResultError {
    /// The file is not there, or not for us.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something in it is not what it has to be.
    #[error("{}: at {place}: {reason}", file.display())]
    Malformed {
        /// Which file.
        file: PathBuf,
        /// Where in it, as `samples[3].rss_kib`; `.` is the whole.
        place: String,
        /// What is wrong, with line and column.
        reason: String,
    },
}

/// Reads a text.
///
/// # Errors
/// [`ResultError::Io`] names the file.
pub fn load_text(file: &Path) -> Result<String, ResultError> {
    fs::read_to_string(file).map_err(|source| ResultError::Io {
        file: file.to_owned(),
        source,
    })
}

/// Reads a result file.
///
/// # Errors
/// [`ResultError`] names the file, and the place in it that is wrong.
pub fn load<T: DeserializeOwned>(file: &Path) -> Result<T, ResultError> {
    let text = load_text(file)?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let malformed = |place: String, reason: String| ResultError::Malformed {
        file: file.to_owned(),
        place,
        reason,
    };
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| malformed(error.path().to_string(), error.inner().to_string()))?;
    json.end()
        .map_err(|error| malformed(".".to_owned(), error.to_string()))?;
    Ok(value)
}

/// Reads a result file; `None` where there is none.
///
/// # Errors
/// As [`load`].
pub fn load_if_there<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, ResultError> {
    match load(file) {
        Err(ResultError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        loaded => loaded.map(Some),
    }
}

/// Writes a result file, and makes its directory.
///
/// # Errors
/// [`ResultError::Io`].
pub fn save(result: &impl Serialize, file: &Path) -> Result<(), ResultError> {
    let text = serde_json::to_string_pretty(result).map_err(io::Error::other);
    save_text(&(text.map_err(|source| failed(file, source))? + "\n"), file)
}

/// Writes what belongs to a result: a plot, a table.
///
/// # Errors
/// [`ResultError::Io`].
pub fn save_text(text: &str, file: &Path) -> Result<(), ResultError> {
    save_bytes(text.as_bytes(), file)
}

/// The same of a picture.
///
/// # Errors
/// [`ResultError::Io`].
pub fn save_bytes(bytes: &[u8], file: &Path) -> Result<(), ResultError> {
    let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
    directory
        .and_then(|()| fs::write(file, bytes))
        .map_err(|source| failed(file, source))
}

fn failed(file: &Path, source: io::Error) -> ResultError {
    ResultError::Io {
        file: file.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Run {
        values: Vec<Value>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Value {
        kpps: f64,
    }

    /// A file of its own for each test, removed with it.
    struct File(PathBuf);

    impl File {
        fn with(name: &str, text: &str) -> Self {
            let file = env::temp_dir().join(format!("convoy-{name}-{}", std::process::id()));
            save_text(text, &file).unwrap();
            Self(file)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_is_saved_can_be_loaded() {
        let file = File::with("saved", "");
        let values = vec![Value { kpps: 450.5 }];
        save(&Run { values }, &file.0).unwrap();
        assert_eq!(load::<Run>(&file.0).unwrap().values[0].kpps, 450.5);
    }

    #[test]
    fn a_malformed_file_is_refused_with_its_name_and_the_place() {
        let refusal = |name, text: &str| {
            let file = File::with(name, text);
            let refusal = load::<Run>(&file.0).unwrap_err().to_string();
            assert!(
                refusal.starts_with(&file.0.display().to_string()),
                "{refusal}"
            );
            refusal
        };
        let wrong = refusal(
            "wrong-value",
            r#"{"values": [{"kpps": 1.0}, {"kpps": "x"}]}"#,
        );
        assert!(wrong.contains("at values[1].kpps: invalid type"), "{wrong}");
        let missing = refusal("missing", r#"{"values": [{}]}"#);
        assert!(
            missing.contains("at values[0]: missing field `kpps`"),
            "{missing}"
        );
        let cut = refusal("cut-short", r#"{"values": [{"kpps": 1.0}"#);
        assert!(cut.contains("line 1"), "{cut}");
        let more = refusal("two-values", r#"{"values": []} {}"#);
        assert!(more.contains("trailing characters"), "{more}");
    }

    #[test]
    fn a_file_that_is_not_there_is_no_result() {
        let nowhere = Path::new("/nowhere/at/all.json");
        assert!(load_if_there::<Run>(nowhere).unwrap().is_none());
        assert!(load::<Run>(nowhere).is_err());
        let file = File::with("empty", "");
        assert!(load_if_there::<Run>(&file.0).is_err());
    }
}
