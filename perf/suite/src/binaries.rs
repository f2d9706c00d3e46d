//! Test binaries, as cargo builds them.

use std::{
    env,
    io::BufReader,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Artifact, Message, TargetKind};

/// A test binary.
pub(crate) struct Binary {
    /// Package and target, as messages name it.
    pub(crate) name: String,
    pub(crate) target: String,
    /// Whether it comes from `tests/`; unit tests come from `src/`.
    pub(crate) is_integration: bool,
    pub(crate) path: PathBuf,
    /// The directory of its `Cargo.toml`, in which its tests expect to run.
    pub(crate) directory: PathBuf,
}

/// Builds what `cargo test ARGUMENTS` would run: unit tests first, then integration tests.
///
/// # Errors
/// If cargo fails; it has printed why.
pub(crate) fn build(arguments: &[String]) -> Result<Vec<Binary>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut binaries = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
        {
            binaries.extend(binary(artifact));
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo test --no-run: {status}");
    ensure!(!binaries.is_empty(), "no test binary was selected");
    binaries.sort_by(|a, b| (a.is_integration, &a.name).cmp(&(b.is_integration, &b.name)));
    Ok(binaries)
}

fn binary(artifact: Artifact) -> Option<Binary> {
    let directory = artifact.manifest_path.parent()?;
    let is_integration = artifact.target.kind.contains(&TargetKind::Test);
    let place = directory.file_name().unwrap_or_default();
    let target = artifact.target.name;
    let kind = if is_integration {
        target.as_str()
    } else {
        "unit tests"
    };
    Some(Binary {
        name: format!("{place}: {kind}"),
        is_integration,
        path: artifact.executable?.into(),
        directory: directory.into(),
        target,
    })
}
