//! Test binaries, as cargo builds them.

use std::collections::HashSet;
use std::env;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{Artifact, Message, MetadataCommand, PackageId, TargetKind};

/// The crate of network namespaces, daemons and traffic.
const LAB: &str = "convoy-lab";

/// A test binary.
pub(crate) struct Binary {
    /// Package and target, as messages name it.
    pub(crate) name: String,
    pub(crate) target: String,
    /// Whether it may start daemons and judge the whole machine: it comes from `tests/`, and can use a lab.
    pub(crate) has_labs: bool,
    pub(crate) path: PathBuf,
    /// The directory of its `Cargo.toml`, in which its tests expect to run.
    pub(crate) directory: PathBuf,
}

/// Builds what `cargo test ARGUMENTS` would run: first what has no labs.
///
/// # Errors
/// If cargo fails; it has printed why.
pub(crate) fn build(arguments: &[String]) -> Result<Vec<Binary>> {
    let with_labs = packages_with_labs()?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
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
            binaries.extend(binary(artifact, &with_labs));
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo test --no-run: {status}");
    ensure!(!binaries.is_empty(), "no test binary was selected");
    binaries.sort_by(|a, b| (a.has_labs, &a.name).cmp(&(b.has_labs, &b.name)));
    Ok(binaries)
}

/// Returns the workspace's packages whose tests can use a lab.
fn packages_with_labs() -> Result<HashSet<PackageId>> {
    let metadata = MetadataCommand::new().no_deps().exec()?;
    let uses_lab = |package: &cargo_metadata::Package| {
        package.name == LAB || package.dependencies.iter().any(|on| on.name == LAB)
    };
    let packages = metadata.packages.into_iter().filter(uses_lab);
    Ok(packages.map(|package| package.id).collect())
}

fn binary(artifact: Artifact, with_labs: &HashSet<PackageId>) -> Option<Binary> {
    let directory = artifact.manifest_path.parent()?;
    let is_integration = artifact.target.kind.contains(&TargetKind::Test);
    let place = directory.file_name().unwrap_or_default();
    let target = artifact.target.name;
    let kind = match is_integration {
        true => target.as_str(),
        false => "unit tests",
    };
    Some(Binary {
        name: format!("{place}: {kind}"),
        has_labs: is_integration && with_labs.contains(&artifact.package_id),
        path: artifact.executable?.into(),
        directory: directory.into(),
        target,
    })
}
