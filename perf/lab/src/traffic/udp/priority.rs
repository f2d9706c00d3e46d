//! A generator that does not wait for the daemons to leave it the CPU.

use nix::errno::Errno;

/// While it lives, the calling thread comes before all ordinary ones.
///
/// On a machine that the daemons share with the generator, the load is then what is asked for, as
/// if it came from another machine, and not what they leave time for.
#[derive(Debug)]
pub(in crate::traffic) struct Precedence(());

impl Precedence {
    /// None where this user may not have it: without root.
    pub(in crate::traffic) fn take() -> Option<Self> {
        schedule(libc::SCHED_RR, 1).ok().map(|()| Self(()))
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        // What could be raised can be lowered.
        let _ = schedule(libc::SCHED_OTHER, 0);
    }
}

fn schedule(policy: i32, priority: i32) -> Result<(), Errno> {
    // musl has this call for POSIX's sake only: it always fails there.
    // SAFETY: process 0 is the calling thread; the kernel's `sched_param` is one number, and
    // `priority` outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: process 0 is the calling thread; the call has no other precondition.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn precedence_ends_when_it_is_dropped() {
        let before = policy();
        let Some(precedence) = Precedence::take() else {
            assert!(!nix::unistd::geteuid().is_root(), "root may have it");
            return;
        };
        assert_eq!(policy(), libc::SCHED_RR);
        drop(precedence);
        assert_eq!(policy(), before);
    }
}
