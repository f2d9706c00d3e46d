//! Restricts the address families of a command's sockets: other families lead out of the namespace, for example to the
//! host of a virtual machine (`AF_VSOCK`).

use std::env::consts::ARCH;

use anyhow::bail;
use seccompiler::{apply_filter, sock_filter};

/// Families that the namespaces keep inside.
const ALLOWED: [libc::c_int; 4] = [
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    libc::AF_UNIX,
];

/// A system call ABI, as `linux/audit.h` numbers them.
struct Calls {
    architecture: u32,
    socket: u32,
    /// Number of socketcall(2), which does the work of `socket` with arguments in memory, where no filter sees them.
    socketcall: Option<u32>,
}

const X86_64: Calls = Calls {
    architecture: 0xc000_003e,
    socket: 41,
    socketcall: None,
};
const I386: Calls = Calls {
    architecture: 0x4000_0003,
    socket: 359,
    socketcall: Some(102),
};
const AARCH64: Calls = Calls {
    architecture: 0xc000_00b7,
    socket: 198,
    socketcall: None,
};
const ARM: Calls = Calls {
    architecture: 0x4000_0028,
    socket: 281,
    socketcall: None,
};

/// The same for all of them. Its requests for sockets pass by every filter.
const IO_URING_SETUP: u32 = 425;

/// Refuses this process and its descendants all other families.
pub(super) fn restrict() -> anyhow::Result<()> {
    let all = match ARCH {
        "x86_64" => [X86_64, I386],
        "aarch64" => [AARCH64, ARM],
        other => bail!("the system calls of {other} are not known"),
    };
    Ok(apply_filter(&program(&all))?)
}

/// The offsets in `struct seccomp_data`, with arguments in the order of little-endian machines.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// `linux/filter.h`: load a word; jump if it is equal, or not less; return a constant.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// `linux/seccomp.h`
const ALLOW: u32 = 0x7fff_0000;
const FAIL: u32 = 0x0005_0000;

/// The bit of x32's system calls on x86-64.
const X32: u32 = 0x4000_0000;

/// `linux/net.h`
const SYS_SOCKET: u32 = 1;

fn program(all: &[Calls]) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for calls in all {
        let body = body(calls);
        program.push(statement(LOAD, ARCHITECTURE));
        // INVARIANT: a body has fewer than 256 statements.
        let past = body.len() as u8;
        program.push(jump(IF_EQUAL, calls.architecture, 0, past));
        program.extend(body);
    }
    program.push(fail(libc::ENOSYS));
    program
}

fn body(calls: &Calls) -> Vec<sock_filter> {
    let families = ALLOWED.len() as u8;
    let mut body = vec![
        statement(LOAD, NUMBER),
        jump(IF_EQUAL, IO_URING_SETUP, 0, 1),
        fail(libc::ENOSYS),
        jump(IF_EQUAL, calls.socket, 0, families + 3),
        statement(LOAD, FIRST_ARGUMENT),
    ];
    for (after, family) in (0..families).rev().zip(ALLOWED) {
        body.push(jump(IF_EQUAL, family.cast_unsigned(), after + 1, 0));
    }
    body.push(fail(libc::EAFNOSUPPORT));
    body.push(statement(RETURN, ALLOW));
    match calls.socketcall {
        Some(socketcall) => body.extend([
            jump(IF_EQUAL, socketcall, 0, 3),
            statement(LOAD, FIRST_ARGUMENT),
            jump(IF_EQUAL, SYS_SOCKET, 0, 1),
            fail(libc::ENOSYS),
        ]),
        None => body.extend([jump(IF_AT_LEAST, X32, 0, 1), fail(libc::ENOSYS)]),
    }
    body.push(statement(RETURN, ALLOW));
    body
}

fn statement(code: u16, value: u32) -> sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter {
        code,
        jt: if_true,
        jf: if_false,
        k: value,
    }
}

fn fail(errno: libc::c_int) -> sock_filter {
    statement(RETURN, FAIL | errno.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates a filter as the kernel does, as far as ours goes.
    fn run(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let it = &program[at];
            at += 1;
            let holds = match it.code {
                LOAD => {
                    word = match it.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => argument,
                        other => panic!("offset {other}"),
                    };
                    continue;
                }
                RETURN => return it.k,
                IF_EQUAL => word == it.k,
                IF_AT_LEAST => word >= it.k,
                other => panic!("code {other}"),
            };
            at += usize::from(if holds { it.jt } else { it.jf });
        }
    }

    #[test]
    fn only_four_families_are_allowed_by_every_way_of_making_system_calls() {
        const AF_VSOCK: u32 = 40;
        let failure = |errno: libc::c_int| FAIL | errno.cast_unsigned();
        for all in [[X86_64, I386], [AARCH64, ARM]] {
            let program = program(&all);
            for calls in &all {
                let run = |number, argument| run(&program, calls.architecture, number, argument);
                for family in 0..=46_u32 {
                    let expected = match ALLOWED.contains(&family.cast_signed()) {
                        true => ALLOW,
                        false => failure(libc::EAFNOSUPPORT),
                    };
                    assert_eq!(run(calls.socket, family), expected, "{family}");
                }
                assert_eq!(run(IO_URING_SETUP, 0), failure(libc::ENOSYS));
                for number in [0, 1, 40, 42, 100, 360, 500] {
                    assert_eq!(run(number, AF_VSOCK), ALLOW, "{number}");
                }
                match calls.socketcall {
                    Some(socketcall) => {
                        assert_eq!(run(socketcall, SYS_SOCKET), failure(libc::ENOSYS));
                        assert_eq!(run(socketcall, 3), ALLOW);
                    }
                    None => {
                        assert_eq!(run(X32 | calls.socket, AF_VSOCK), failure(libc::ENOSYS));
                    }
                }
            }
            assert_ne!(run(&program, 0, 41, AF_VSOCK), ALLOW);
        }
    }
}
