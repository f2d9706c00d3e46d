//! `convoy profile`: looks into a running daemon while it carries what there is to carry.
//!
//! 1. [`args`]: what is asked for.
//! 2. [`daemon`]: which process that is, and what it has carried so far.
//! 3. [`windows`]: one tool after the other looks at it, here or in a speed test.
//! 4. [`interrupt`]: an end from outside leaves nothing half-written.
//!
//! The tools, and the reading of what they write, are in [`convoy_perf`].

mod args;
mod daemon;
mod interrupt;
mod windows;

use convoy_perf::{Attached, Directory, Window};

use args::Target;
pub(crate) use args::{CallGraph, ProfileArgs};
pub(crate) use daemon::Daemon;
pub(crate) use windows::{Profile, Request};

use crate::told_once::told_once;

/// Profiles a daemon, or reads what was recorded before, and says where the result is.
///
/// # Errors
///
/// When there is no such daemon, a tool is missing or may not look, the daemon ends, or the directory
/// cannot be written; with the fix.
pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    profile(args).map_err(|error| told_once(&error))
}

fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    let daemon = match args.target()? {
        Target::Text(text) => {
            let directory = Directory::open(&args.out)?;
            convoy_perf::read(text, directory, args.compare.as_deref())?;
            windows::say_where(&args.out);
            return Ok(());
        }
        Target::Interface(interface) => Daemon::of_interface(interface)?,
        Target::Process(pid) => Daemon::of_process(pid)?,
    };
    let what = daemon.to_string();
    let mut profile = Profile::new(vec![daemon], &args.request())?;
    for window in Window::ALL {
        let watch = |attached: &mut Attached| Ok(attached.watch(args.window())?);
        eprintln!("{} …", window.name());
        profile.look(window, watch)?;
    }
    profile.report(&what)
}
