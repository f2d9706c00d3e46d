//! The system calls of a running daemon; all others fail with `EPERM`.
//!
//! Calls that move packets are allowed whatever their arguments: the kernel then decides by a bitmap, without
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
    // Descriptors. Nothing opens files.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_pipe2,
    libc::SYS_statx,
    // Memory; `mmap` and `mprotect` themselves are below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_getrandom,
    // Threads and signals; `clone`, and what names a process, are below.
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
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older forms that other architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_time,
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

/// Names of a thread, and of its memory: for debuggers. Whether these may attach.
const PRCTLS: [libc::c_int; 4] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_DUMPABLE,
];

/// The bits of a socket's type beside its flags.
const TYPE: u64 = 0xf;

/// Calls that suffice to remove files in open directories, and to be told when.
const REMOVING: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_unlinkat,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
];

const DENIED: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Restricts the system calls of all threads, for good.
pub(super) fn restrict() -> anyhow::Result<()> {
    let allowed = program(rules()?, DENIED, SeccompAction::Allow)?;
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

/// Leaves only the system calls that remove files.
pub(super) fn restrict_to_removing() -> anyhow::Result<()> {
    let rules = REMOVING.iter().map(|call| (*call, Vec::new())).collect();
    let allowed = program(rules, DENIED, SeccompAction::Allow)?;
    Ok(apply_filter_all_threads(&allowed)?)
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
        let rules = values
            .iter()
            .map(|value| rule(&[(argument, Op::Eq, *value)]));
        rules.collect::<anyhow::Result<Vec<_>>>()
    };
    let without = |argument, bits| rule(&[(argument, Op::MaskedEq(bits), 0)]);
    let executable = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(libc::SYS_ioctl, of(1, &IOCTLS)?);
    rules.insert(libc::SYS_prctl, of(0, &PRCTLS.map(|option| option as u64))?);
    rules.insert(libc::SYS_mmap, vec![without(2, executable)?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, executable)?]);
    // Threads, not processes.
    let thread = libc::CLONE_THREAD as u64;
    let clone = rule(&[(0, Op::MaskedEq(thread), thread)])?;
    rules.insert(libc::SYS_clone, vec![clone]);
    // Of this process only. musl's raise(3) uses tkill, which cannot tell processes apart: without it, its abort(3)
    // ends the process by an invalid instruction.
    rules.insert(libc::SYS_tgkill, of(0, &[std::process::id().into()])?);
    rules.insert(libc::SYS_prlimit64, of(0, &[0])?);
    rules.insert(libc::SYS_sched_setscheduler, of(0, &[0])?);
    Ok(rules)
}

/// Datagrams, routes and links of the kernel, and the names of interfaces, for which C libraries use a Unix socket.
fn sockets() -> anyhow::Result<Vec<SeccompRule>> {
    let (route, datagram) = (libc::NETLINK_ROUTE as u64, libc::SOCK_DGRAM as u64);
    let family = |family: libc::c_int| (0, Op::Eq, family as u64);
    Ok(vec![
        rule(&[family(libc::AF_INET)])?,
        rule(&[family(libc::AF_INET6)])?,
        rule(&[family(libc::AF_NETLINK), (2, Op::Eq, route)])?,
        rule(&[family(libc::AF_UNIX), (1, Op::MaskedEq(TYPE), datagram)])?,
    ])
}

/// Matches a call if each of these arguments does.
fn rule(arguments: &[(u8, Op, u64)]) -> anyhow::Result<SeccompRule> {
    let conditions = arguments.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, Len::Dword, operator.clone(), *value)
    });
    Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
}
