//! System calls inside a running process, as whoever had taken it over could make them.

use std::{
    ffi::CStr,
    fs::{self, File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::unix::fs::FileExt as _,
    ptr,
};

use convoy_lab::Pid;
use libc::{c_long, user_regs_struct};
use nix::sys::wait::{WaitPidFlag, waitpid};

use super::becomes_confined;

/// Bytes of the process's stack that the arguments may take.
const ROOM: u64 = 4_096;

/// Below the stack pointer, so that the process does not notice.
const DISTANCE: u64 = 2 * ROOM;

/// A process whose first thread stands still. It goes on when this is dropped.
pub(super) struct Inside {
    pid: Pid,
    memory: File,
    before: user_regs_struct,
    /// A `syscall` instruction.
    instruction: u64,
    free: u64,
}

impl Inside {
    pub(super) fn of(pid: Pid) -> Self {
        becomes_confined(pid);
        trace(libc::PTRACE_SEIZE as i64, pid, 0).unwrap();
        trace(libc::PTRACE_INTERRUPT as i64, pid, 0).unwrap();
        wait(pid);
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"));
        let memory = memory.unwrap();
        let before = registers(pid);
        Self {
            instruction: instruction(pid, &memory),
            free: (before.rsp - DISTANCE) & !0xf,
            pid,
            memory,
            before,
        }
    }

    /// Makes a system call.
    pub(super) fn call(&mut self, number: c_long, arguments: &[u64]) -> io::Result<u64> {
        let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
        let registers_of_call = user_regs_struct {
            rip: self.instruction,
            rax: number.cast_unsigned(),
            // It is not to be restarted.
            orig_rax: u64::MAX,
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            ..self.before
        };
        set_registers(self.pid, &registers_of_call);
        trace(libc::PTRACE_SINGLESTEP as i64, self.pid, 0).unwrap();
        wait(self.pid);
        self.free = (self.before.rsp - DISTANCE) & !0xf;
        let result = registers(self.pid).rax;
        match result.cast_signed() {
            error @ -4_095..=-1 => {
                Err(io::Error::from_raw_os_error(-i32::try_from(error).unwrap()))
            }
            _ => Ok(result),
        }
    }

    /// The address of these bytes, for the next call.
    pub(super) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.free;
        self.memory.write_all_at(bytes, at).unwrap();
        self.free += (bytes.len() as u64).next_multiple_of(16);
        assert!(self.free < self.before.rsp - DISTANCE + ROOM);
        at
    }

    pub(super) fn text(&mut self, text: &CStr) -> u64 {
        self.put(text.to_bytes_with_nul())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        set_registers(self.pid, &self.before);
        trace(libc::PTRACE_DETACH as i64, self.pid, 0).unwrap();
    }
}

fn wait(pid: Pid) {
    waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
}

/// Every process has one in what the kernel maps for `clock_gettime`.
fn instruction(pid: Pid, memory: &File) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let mut ends = line.split(['-', ' ']).take(2);
    let mut end = || u64::from_str_radix(ends.next().unwrap(), 16).unwrap();
    let (begin, end) = (end(), end());
    let mut code = vec![0; usize::try_from(end - begin).unwrap()];
    memory.read_exact_at(&mut code, begin).unwrap();
    let at = code.windows(2).position(|bytes| bytes == [0x0f, 0x05]);
    begin + at.unwrap() as u64
}

fn registers(pid: Pid) -> user_regs_struct {
    let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
    trace(
        libc::PTRACE_GETREGS as i64,
        pid,
        registers.as_mut_ptr() as usize,
    )
    .unwrap();
    // SAFETY: numbers, all of which the kernel has written.
    unsafe { registers.assume_init() }
}

fn set_registers(pid: Pid, registers: &user_regs_struct) {
    trace(
        libc::PTRACE_SETREGS as i64,
        pid,
        ptr::from_ref(registers) as usize,
    )
    .unwrap();
}

fn trace(request: i64, pid: Pid, data: usize) -> io::Result<()> {
    let pid = i64::from(pid.as_raw());
    // SAFETY: `data` is 0 or the address of registers that outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, pid, 0_usize, data) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
