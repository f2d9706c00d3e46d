//! A generator that does not wait for the daemons to leave it the CPU.

use nix::errno::Errno;

/// While it lives, the calling thread comes before all ordinary ones.
///
/// On a machine that the daemons share with the generator, the load is then as asked, as if it came
/// from another machine, and not limited to the time that they leave.
#[derive(Debug)]
pub(super) struct Precedence(());

impl Precedence {
    /// None where this user may not have it: without root.
    pub(super) fn take() -> Option<Self> {
        schedule(libc::SCHED_RR, 1).ok().map(|()| Self(()))
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        // A priority that could be raised can be lowered.
        let _ = schedule(libc::SCHED_OTHER, 0);
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> Result<(), Errno> {
    // The system call, since musl's sched_setscheduler does nothing. The kernel's `struct sched_param`
    // is the priority alone.
    // SAFETY: process 0 is the calling thread, and `priority` outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_long {
        // SAFETY: process 0 is the calling thread; the call has no other precondition.
        unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
    }

    #[test]
    fn precedence_ends_when_it_is_dropped() {
        let before = policy();
        let Some(precedence) = Precedence::take() else {
            assert!(!nix::unistd::geteuid().is_root(), "root may have it");
            return;
        };
        assert_eq!(policy(), libc::c_long::from(libc::SCHED_RR));
        drop(precedence);
        assert_eq!(policy(), before);
    }
}
