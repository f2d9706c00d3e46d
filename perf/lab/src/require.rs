//! Tests that need a lab are skipped with a message if there is none, or fail if skipping is forbidden.

use std::env;
use std::io::{self, Write};
use std::sync::OnceLock;

use crate::{error::LabError, lab::Lab, tool::package};

/// If set to `1`, a test that would be skipped fails instead.
const MUST: &str = "CONVOY_REQUIRE_LAB";

/// Returns whether the test `test` can have a lab; if not, prints the reason.
///
/// # Panics
/// Instead of returning `false`, if `CONVOY_REQUIRE_LAB=1` is set.
#[must_use]
pub fn require_lab(test: &str) -> bool {
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let refusal = REFUSAL.get_or_init(|| {
        // The kernel may refuse a network namespace although it granted the user namespace, so create one.
        let probe = Lab::new().and_then(|lab| lab.namespace("probe"));
        probe.err().map(|why| why.to_string())
    });
    refusal.as_ref().is_none_or(|why| skip(test, why))
}

/// Like [`require_lab`], for a test that calls [`Namespace::run`](crate::Namespace::run).
#[must_use]
pub fn require_root_lab(test: &str) -> bool {
    match Lab::new() {
        Ok(lab) if !lab.is_root() => skip(test, &LabError::RunNeedsRoot.to_string()),
        _ => require_lab(test),
    }
}

/// Like [`require_lab`], for `programs` in `PATH`.
#[must_use]
pub fn require_programs(test: &str, programs: &[&str]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = |name| env::split_paths(&path).any(|place| place.join(name).is_file());
    let missing = programs.iter().find(|name| !is_installed(**name));
    missing.is_none_or(|name| {
        let package = package(name);
        skip(test, &format!("not installed: {name} (package {package})"))
    })
}

fn skip(test: &str, why: &str) -> bool {
    assert!(
        env::var_os(MUST).is_none_or(|value| value != "1"),
        "{test} needs a lab: {why}"
    );
    // Bypasses the capture of a passing test's output; a closed standard error is no reason to fail.
    let _ = writeln!(
        io::stderr(),
        "SKIPPED {test}: {why} (set {MUST}=1 to make this a failure)"
    );
    false
}
