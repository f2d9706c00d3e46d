//! The system calls of a running daemon; all others fail with `EPERM`.
//!
//! Those that move packets are allowed whatever their arguments: the kernel then decides by a bitmap, without
//! running the filter.

use std::{collections::BTreeMap, env::consts::ARCH};

use anyhow::Context;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter_all_threads,
};

/// Allowed with any arguments.
const ANY: &[libc::c_long] = &[
    // Packets and datagrams.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Waiting and waking.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_ppoll,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Sockets; `socket` itself is below.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Descriptors and files; `openat` itself is below.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    // Memory; `mmap` and `mprotect` themselves are below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_getrandom,
    // Threads and signals; `clone` itself is below.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_membarrier,
    libc::SYS_prlimit64,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_uname,
];

/// Older forms that other architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

/// Requests of `ioctl`: the device's name and network namespace, non-blocking mode, the index of an interface,
/// and whether a descriptor is a terminal.
#[allow(clippy::unnecessary_cast, reason = "the C library decides their types")]
const IOCTLS: [u64; 7] = [
    libc::TUNGETIFF as u64,
    libc::TUNGETDEVNETNS as u64,
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFNAME as u64,
    libc::TCGETS as u64,
];

const FAMILIES: [libc::c_int; 4] = [
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    libc::AF_UNIX,
];

/// Names of a thread, and of its memory: for debuggers.
const PRCTLS: [libc::c_int; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// Restricts the system calls of all threads, for good.
pub(super) fn restrict() -> anyhow::Result<()> {
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let allowed = program(rules()?, denied, SeccompAction::Allow)?;
    // A filter does not see the flags of `clone3`. Where it is absent, libraries use `clone`.
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = [(libc::SYS_clone3, Vec::new())].into();
    // Installed first: the other filter allows no further ones.
    let without_clone3 = program(clone3, SeccompAction::Allow, absent)?;
    for program in [without_clone3, allowed] {
        apply_filter_all_threads(&program)?;
    }
    Ok(())
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> anyhow::Result<BpfProgram> {
    let filter = SeccompFilter::new(rules, otherwise, matching, ARCH.try_into()?)?;
    filter.try_into().context("compile the filter")
}

fn rules() -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let any = ANY.iter().chain(OLD).chain(&[libc::SYS_clone3]);
    let mut rules: BTreeMap<_, _> = any.map(|call| (*call, Vec::new())).collect();
    let of = |argument, values: &[u64]| {
        let rules = values.iter().map(|value| rule(argument, Op::Eq, *value));
        rules.collect::<anyhow::Result<Vec<_>>>()
    };
    let without =
        |argument, bits: u64| Ok::<_, anyhow::Error>(vec![rule(argument, Op::MaskedEq(bits), 0)?]);
    let with = |argument, bits: u64| {
        Ok::<_, anyhow::Error>(vec![rule(argument, Op::MaskedEq(bits), bits)?])
    };
    let executable = libc::PROT_EXEC as u64;
    let writing = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    rules.insert(
        libc::SYS_socket,
        of(0, &FAMILIES.map(|family| family as u64))?,
    );
    rules.insert(libc::SYS_ioctl, of(1, &IOCTLS)?);
    rules.insert(libc::SYS_prctl, of(0, &PRCTLS.map(|option| option as u64))?);
    // To read.
    rules.insert(libc::SYS_openat, without(2, writing)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, without(1, writing)?);
    rules.insert(libc::SYS_mmap, without(2, executable)?);
    rules.insert(libc::SYS_mprotect, without(2, executable)?);
    // Threads, not processes.
    rules.insert(libc::SYS_clone, with(0, libc::CLONE_THREAD as u64)?);
    Ok(rules)
}

fn rule(argument: u8, operator: Op, value: u64) -> anyhow::Result<SeccompRule> {
    let condition = SeccompCondition::new(argument, Len::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
