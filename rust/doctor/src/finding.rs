//! Findings of a check, and the report of all checks.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// JSON Schema of a [`Diagnosis`], as `convoy doctor --schema` prints it.
pub const SCHEMA: &str = include_str!("../schema/doctor.schema.json");

/// The output of `convoy doctor --json`: one line.
///
/// Later versions may add fields, and findings with other `id`s; what is here keeps its name and meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The version of convoy.
    pub version: String,
    /// The tunnel that was asked about.
    pub tunnel: Option<String>,
    /// The greatest of all findings.
    pub severity: Severity,
    /// At least one for each check, in the order in which they are shown.
    pub findings: Vec<Finding>,
}

/// One result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// The check. It has the same name in every version.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// The peer that it concerns: its friendly name, or else its public key in base64.
    pub peer: Option<String>,
    /// Finding in one sentence.
    pub what: String,
    /// Advice in one sentence; null if nothing is to be done.
    pub fix: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or not checked; nothing is wrong.
    Note,
    /// The tunnel works, but worse than it could, or not in every network.
    Warning,
    /// The tunnel does not work.
    Error,
}

impl Diagnosis {
    pub(crate) fn new(tunnel: Option<String>, findings: Vec<Finding>) -> Self {
        let all = findings.iter().map(|finding| finding.severity);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            tunnel,
            severity: all.max().unwrap_or(Severity::Ok),
            findings,
        }
    }
}

impl Finding {
    pub(crate) fn ok(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Ok, what.into(), None)
    }

    /// Something that nobody has to do anything about.
    pub(crate) fn remark(id: &str, what: impl Into<String>) -> Self {
        Self::new(id, Severity::Note, what.into(), None)
    }

    pub(crate) fn note(id: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Severity::Note, what.into(), Some(fix.into()))
    }

    pub(crate) fn warning(id: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, what.into(), Some(fix.into()))
    }

    pub(crate) fn error(id: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Severity::Error, what.into(), Some(fix.into()))
    }

    /// The same about one peer.
    pub(crate) fn about(self, peer: &str) -> Self {
        Self {
            peer: Some(peer.to_owned()),
            ..self
        }
    }

    fn new(id: &str, severity: Severity, what: String, fix: Option<String>) -> Self {
        Self {
            id: id.to_owned(),
            severity,
            peer: None,
            what,
            fix,
        }
    }
}

impl Severity {
    /// As the text names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// Returns the exit status of a report; see the command's help.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(self.status())
    }

    fn status(self) -> u8 {
        match self {
            Self::Ok | Self::Note => 0,
            Self::Warning => 3,
            Self::Error => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_report::schema::{compare, schema_of};
    use std::path::Path;

    #[test]
    fn the_schema_of_the_report_is_the_committed_one() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = manifest.join("schema/doctor.schema.json");
        compare(&path, &schema_of::<Diagnosis>());
    }

    #[test]
    fn the_worst_finding_decides_and_notes_are_no_failure() {
        let finding = [
            Finding::ok("a", "it is well"),
            Finding::note("b", "it is small", "make it larger"),
            Finding::warning("c", "it is slow", "make it faster"),
            Finding::error("d", "it is broken", "mend it"),
        ];
        let status = |count: usize| {
            let findings = finding[..count].iter().rev().cloned().collect();
            Diagnosis::new(None, findings).severity.status()
        };
        assert_eq!([0, 1, 2, 3, 4].map(status), [0, 0, 0, 3, 4]);
    }

    #[test]
    fn the_report_is_read_back_from_its_json() {
        let findings = vec![
            Finding::ok("a", "it is well"),
            Finding::error("d", "it is broken", "mend it").about("Office"),
        ];
        let diagnosis = Diagnosis::new(Some("wg0".to_owned()), findings);
        let json = serde_json::to_string(&diagnosis).unwrap();
        assert!(json.contains(r#""severity":"error""#), "{json}");
        assert!(json.contains(r#""fix":null"#), "{json}");
        assert_eq!(serde_json::from_str::<Diagnosis>(&json).unwrap(), diagnosis);
    }
}
