//! Requests to a router by UDP, and their answers.

use std::{io, net::Ipv4Addr, time::Duration};

use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};
use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};

/// The port of both protocols.
pub(crate) const PORT: u16 = 5351;
/// Milliseconds that each request has for its answer, until the next one: the router is near.
pub(crate) const WAITS: [u64; 4] = [250, 500, 1_000, 2_000];
/// The same for a mapping that is withdrawn.
pub(crate) const LAST_WAITS: [u64; 2] = [100, 200];
/// Longest answer that is read, in bytes (RFC 6887 §7).
pub(crate) const MAX_ANSWER: usize = 1_100;

/// Sends a request until `read` takes an answer; `None` if there is none, or nobody has the port.
pub(crate) async fn exchange<T>(
    socket: &UdpSocket,
    request: &[u8],
    waits: &[u64],
    read: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut buffer = [0; MAX_ANSWER];
    for wait in waits {
        let sent = socket.send(request).await;
        let deadline = Instant::now() + Duration::from_millis(*wait);
        if is_refused(&sent) {
            return Ok(None);
        }
        sent?;
        while let Ok(received) = timeout_at(deadline, socket.recv(&mut buffer)).await {
            if is_refused(&received) {
                return Ok(None);
            }
            if let Some(answer) = read(&buffer[..received?]) {
                return Ok(Some(answer));
            }
        }
    }
    Ok(None)
}

/// Opens a socket that hears the router alone. With the tunnel's mark, it stays outside of the tunnel.
pub(crate) async fn socket(
    interface: &str,
    router: Ipv4Addr,
    mark: Option<u32>,
) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    if let Some(mark) = mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    if !interface.is_empty() {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.connect((router, PORT)).await?;
    Ok(socket)
}

/// Returns whether the router has rejected a request: some firewalls prohibit it, or claim to know no UDP.
fn is_refused(outcome: &io::Result<usize>) -> bool {
    let rejections = [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ENOPROTOOPT];
    let code = outcome.as_ref().err().and_then(io::Error::raw_os_error);
    code.is_some_and(|code| rejections.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_that_rejects_requests_with_whatever_message_speaks_no_such_protocol() {
        for (errno, is_rejected) in [
            (Errno::ECONNREFUSED, true),
            (Errno::EHOSTUNREACH, true),
            (Errno::ENOPROTOOPT, true),
            (Errno::ENETUNREACH, false),
            (Errno::ENODEV, false),
            (Errno::EPERM, false),
        ] {
            assert_eq!(is_refused(&Err(errno.into())), is_rejected, "{errno}");
        }
        assert!(!is_refused(&Ok(0)));
    }
}
