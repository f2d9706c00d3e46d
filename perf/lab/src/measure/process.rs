//! What a process has used, whatever it is.

use std::{fs, io, time::Duration};

use nix::{time::ClockId, unistd::Pid};

/// To `/proc/PID/clear_refs`: forget the peak (proc_pid_clear_refs(5)).
const FORGET_PEAK: &str = "5";

/// CPU time of all its threads since it was started.
///
/// # Errors
///
/// When it is gone.
pub fn cpu_time(pid: Pid) -> io::Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(pid)?;
    Ok(clock.now().map(Duration::from)?)
}

/// The most memory that it has had, in bytes (`VmHWM`, proc_pid_status(5)).
///
/// # Errors
///
/// When it is gone.
pub fn peak_memory(pid: Pid) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| {
        let kib = line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "no VmHWM in its status");
    peak.map(|kib| kib * 1_024).ok_or_else(missing)
}

/// Lets [`peak_memory`] tell the peak from now on.
///
/// # Errors
///
/// When it is gone, or is another user's.
pub fn forget_peak_memory(pid: Pid) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), FORGET_PEAK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_is_forgotten_does_not_count_any_more() {
        const BYTES: usize = 64 * 1_024 * 1_024;
        let own = Pid::this();
        let block = vec![1_u8; BYTES];
        let with_block = peak_memory(own).unwrap();
        assert!(with_block >= BYTES as u64, "{}", block.len());
        drop(block);
        forget_peak_memory(own).unwrap();
        let after = peak_memory(own).unwrap();
        assert!(after + BYTES as u64 / 2 < with_block, "{after}");
        assert!(cpu_time(own).unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_process_that_is_gone_has_used_nothing_that_can_be_told() {
        // Above PID_MAX_LIMIT.
        let nobody = Pid::from_raw((1 << 22) + 1);
        assert!(cpu_time(nobody).is_err());
        assert!(peak_memory(nobody).is_err());
    }
}
