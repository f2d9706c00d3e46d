//! A process that is held by a descriptor, so that its number cannot be reused for another.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::{Child, ExitStatus},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::Pid,
};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};
use tracing::warn;

/// Time limit for a process to end after its connection has ended, or if it hangs.
pub(super) const ENDING_TIME: Duration = Duration::from_secs(1);

/// Time limit for a killed process to end.
const DYING_TIME: Duration = Duration::from_secs(5);

/// A running process, or one that has just ended. Dropping it does nothing to it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// Readable once the process has ended.
    end: AsyncFd<OwnedFd>,
    /// `None` if another process has started it, or its status has been collected.
    child: Option<Child>,
    has_ended: bool,
}

impl Process {
    /// Call it, as [`Process::of_other`], within a tokio runtime.
    pub(super) fn of_child(child: Child) -> io::Result<Self> {
        // Process numbers are positive 32-bit numbers.
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Self {
            child: Some(child),
            ..Self::of_other(pid)?
        })
    }

    /// Watches a process that is not a child of this one.
    ///
    /// # Errors
    /// If there is no such process, or no descriptor is left.
    pub fn of_other(pid: Pid) -> io::Result<Self> {
        let number = rustix::process::Pid::from_raw(pid.as_raw());
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let end = pidfd_open(number, PidfdFlags::empty())?;
        Ok(Self {
            pid,
            // SAFETY: the descriptor is open, and nothing else closes it while the `AsyncFd` owns it.
            end: unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?,
            child: None,
            has_ended: false,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether [`Process::end_within`] has seen its end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether it is running.
    pub(super) fn is_running(&self) -> bool {
        let mut ends = [PollFd::new(self.end.get_ref().as_fd(), PollFlags::POLLIN)];
        poll(&mut ends, PollTimeout::ZERO).is_ok_and(|ended| ended == 0)
    }

    /// Waits for its end. Cancel-safe.
    pub async fn ended(&self) {
        // Once readable, it stays so: readiness is not cleared. An error means that the runtime ends.
        let ready = self.end.readable().await.map(drop);
        drop(ready);
    }

    /// Waits for its end for `time` at most, then kills it; returns the status if it was a child. Cancel-safe.
    pub(super) async fn end_within(&mut self, time: Duration) -> Option<ExitStatus> {
        if timeout(time, self.ended()).await.is_err() {
            warn!("the tunnel process {} does not end: killing it", self.pid);
            self.kill();
            self.has_ended = timeout(DYING_TIME, self.ended()).await.is_ok();
        } else {
            self.has_ended = true;
        }
        self.status()
    }

    /// Kills it if it has not ended. Blocks until it is gone, usually for some milliseconds.
    fn end_now(&mut self) {
        if self.has_ended {
            return;
        }
        self.kill();
        let end = PollFd::new(self.end.get_ref().as_fd(), PollFlags::POLLIN);
        let time = PollTimeout::try_from(DYING_TIME).unwrap_or(PollTimeout::MAX);
        self.has_ended = poll(&mut [end], time).is_ok_and(|ended| ended > 0);
        self.status();
    }

    fn kill(&self) {
        if let Err(error) = pidfd_send_signal(self.end.get_ref(), Signal::KILL) {
            warn!("cannot kill the tunnel process {}: {error}", self.pid);
        }
    }

    /// Collects the status of a child that has ended.
    fn status(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten();
        if status.is_some() {
            self.child = None;
        }
        status
    }
}

/// A child that is not ready yet: it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Starting(Option<Process>);

impl Starting {
    pub(super) fn new(process: Process) -> Self {
        Self(Some(process))
    }

    /// Returns the process, which is ready: it is no longer killed on drop.
    pub(super) fn started(mut self) -> Option<Process> {
        self.0.take()
    }

    /// As [`Process::end_within`].
    pub(super) async fn end_within(&mut self, time: Duration) -> Option<ExitStatus> {
        match &mut self.0 {
            Some(process) => process.end_within(time).await,
            None => None,
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            process.end_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };

    use super::*;

    #[tokio::test]
    async fn the_status_of_a_child_that_ends_is_collected() {
        let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let mut process = Process::of_child(child).unwrap();
        process.ended().await;
        process.ended().await;
        let status = process.end_within(DYING_TIME).await;
        assert_eq!(status.unwrap().code(), Some(7));
        assert!(process.has_ended());
    }

    #[tokio::test]
    async fn a_process_that_does_not_end_in_time_is_killed() {
        let child = endless();
        let mut process = Process::of_child(child).unwrap();
        let ended = timeout(Duration::ZERO, process.ended()).await;
        assert!(ended.is_err());
        let status = process.end_within(Duration::from_millis(1)).await;
        assert_eq!(status.unwrap().signal(), Some(libc::SIGKILL));
    }

    #[tokio::test]
    async fn another_ones_process_can_be_killed_too() {
        let mut child = endless();
        let pid = Pid::from_raw(child.id().cast_signed());
        let mut process = Process::of_other(pid).unwrap();
        assert_eq!(process.end_within(Duration::ZERO).await, None);
        assert!(process.has_ended());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[tokio::test]
    async fn a_process_whose_start_is_cancelled_is_killed() {
        let process = Process::of_child(endless()).unwrap();
        let watch = Process::of_other(process.pid()).unwrap();
        drop(Starting::new(process));
        assert!(timeout(Duration::ZERO, watch.ended()).await.is_ok());
        let process = Process::of_child(endless()).unwrap();
        let mut process = Starting::new(process).started().unwrap();
        assert!(timeout(Duration::ZERO, process.ended()).await.is_err());
        process.end_now();
    }

    fn endless() -> Child {
        let mut command = Command::new("cat");
        // It reads a pipe whose other end the child's handle holds.
        command.stdin(Stdio::piped()).spawn().unwrap()
    }
}
