//! Sets the socket options for which a tunnel needs other values than quinn-udp sets (Linux).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use socket2::SockRef;

/// Corrects the options that quinn-udp's constructor sets.
///
/// - Timestamps off: their control message crowds out the ECN bits on a receive with GRO.
/// - IPv4: `IP_PMTUDISC_OMIT`, so that no forged ICMP message changes how batches are sent. Routers
///   fragment. See [`heed_route_mtu`] for routes that are narrower than their interface.
/// - IPv6: `IPV6_PMTUDISC_WANT` without `IPV6_DONTFRAG`. IPv6 routers do not fragment, so the kernel
///   does, wherever the route or the path is narrower.
/// - With quinn-udp's `PROBE`, a narrower path would be a black hole in both families.
/// - `UDP_GRO` on if `receive_offload`, else off.
pub(super) fn adjust(socket: BorrowedFd<'_>, receive_offload: bool) -> io::Result<()> {
    let is_v6 = SockRef::from(&socket).domain()? == socket2::Domain::IPV6;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)?;
    if is_v6 {
        let discover = libc::IPV6_PMTUDISC_WANT;
        set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            discover,
        )?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
    } else {
        heed_route_mtu(socket, false)?;
    }
    match set(socket, libc::SOL_UDP, libc::UDP_GRO, receive_offload.into()) {
        // Linux before 5.0 lacks the option and coalesces nothing.
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// Returns whether an IPv4 socket fragments by the route's MTU (`IP_PMTUDISC_DONT`) or by the interface's.
pub(super) fn heed_route_mtu(socket: BorrowedFd<'_>, is_heeded: bool) -> io::Result<()> {
    let discover = match is_heeded {
        true => libc::IP_PMTUDISC_DONT,
        false => libc::IP_PMTUDISC_OMIT,
    };
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)
}

/// Grows both socket buffers to `bytes`: beyond the system's limit with `CAP_NET_ADMIN`, else at most
/// to it.
pub(super) fn grow_buffers(socket: &SockRef<'_>, bytes: usize) {
    let value = i32::try_from(bytes).unwrap_or(i32::MAX);
    // The kernel doubles the size that it grants.
    let requested = 2 * bytes;
    let smaller = || {
        let (receive, send) = buffer_bytes(socket);
        receive.min(send)
    };
    if smaller() >= requested {
        return;
    }
    for (force, ordinary) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        let fd = borrowed(socket);
        if set(fd, libc::SOL_SOCKET, force, value).is_err() {
            // Here the kernel caps the value at its limit.
            let _ = set(fd, libc::SOL_SOCKET, ordinary, value);
        }
    }
    let (receive, send) = buffer_bytes(socket);
    if smaller() < requested {
        tracing::info!(
            receive,
            send,
            requested,
            "UDP socket buffers are smaller than requested (net.core.rmem_max, wmem_max)"
        );
    } else {
        tracing::debug!(receive, send, "UDP socket buffers in bytes");
    }
}

/// Receive and send buffer in bytes, including the overhead that the kernel adds; 0 if unknown.
pub(super) fn buffer_bytes(socket: &SockRef<'_>) -> (usize, usize) {
    let receive = socket.recv_buffer_size().unwrap_or(0);
    (receive, socket.send_buffer_size().unwrap_or(0))
}

/// Datagrams dropped on receive, modulo 2³²: `SK_MEMINFO_DROPS` of `SO_MEMINFO` (linux/sock_diag.h); 0
/// if the kernel does not say.
pub(super) fn drops(socket: BorrowedFd<'_>) -> u64 {
    const SK_MEMINFO_DROPS: usize = 8;
    const SK_MEMINFO_VARS: usize = 9;
    let mut info = [0u32; SK_MEMINFO_VARS];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` is writable for `len` bytes, and the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let whole = result == 0 && len as usize == size_of_val(&info);
    if whole {
        info[SK_MEMINFO_DROPS].into()
    } else {
        0
    }
}

fn borrowed<'a>(socket: &'a SockRef<'_>) -> BorrowedFd<'a> {
    use std::os::fd::AsFd;
    socket.as_fd()
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` outlives the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
