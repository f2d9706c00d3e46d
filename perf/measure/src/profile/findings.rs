//! The findings of a profile.

use convoy_lab::Pid;

use super::{stacks::Stacks, stat::Stat, syscalls::Syscalls};

/// Everything that the report needs.
#[derive(Default)]
pub(super) struct Findings {
    /// The subject of the profile, in words.
    pub(super) what: String,
    /// The daemons; none for a text from elsewhere.
    pub(super) pids: Vec<Pid>,
    pub(super) stacks: Stacks,
    /// The profile to compare with.
    pub(super) before: Option<Stacks>,
    /// A remark on missing parts.
    pub(super) note: Option<String>,
    pub(super) stat: Option<Stat>,
    pub(super) syscalls: Option<Syscalls>,
}
