//! Denies all files to this process, where the kernel has Landlock (landlock(7)).

use anyhow::{Context, ensure};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use std::os::fd::OwnedFd;

/// The newest tested version. Later ones might deny something that a daemon needs.
const TRIED: ABI = ABI::V6;

/// Denies opening, making and removing files, and signals and abstract sockets to processes outside. Descriptors that
/// are open stay usable.
///
/// # Errors
/// If the kernel has no Landlock.
pub(super) fn deny() -> anyhow::Result<()> {
    restrict(&[])
}

/// Denies the same, but lets files in or below `directories` be removed.
pub(super) fn deny_all_but_removing_in(directories: &[&OwnedFd]) -> anyhow::Result<()> {
    restrict(directories)
}

fn restrict(directories: &[&OwnedFd]) -> anyhow::Result<()> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(TRIED))?
        .scope(Scope::from_all(TRIED))?
        .create()
        .context("make a ruleset")?;
    for directory in directories {
        rules = rules.add_rule(PathBeneath::new(directory, AccessFs::RemoveFile))?;
    }
    let restricted = rules.restrict_self().context("enter the ruleset")?;
    ensure!(
        restricted.ruleset != RulesetStatus::NotEnforced,
        "this kernel has no Landlock"
    );
    Ok(())
}
