//! A device whose other end is a program: a network stack in user space in place of the kernel's.
//!
//! Each message of the socket is what a TUN with `IFF_VNET_HDR` exchanges: a virtio header and a packet, or a
//! super-packet of TCP or UDP.

use std::{
    io::{Error, Result},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU16, Ordering},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::PollFlags,
    sys::socket::{SockType, getsockopt, sockopt},
};
use rustix::io::Errno;

use super::{Offload, OpenError, PacketIo, Stop};

/// Adopts one end of a pair.
pub(super) fn adopt(
    fd: OwnedFd,
    name: String,
    mtu: u16,
) -> std::result::Result<(StackSocket, Offload), OpenError> {
    let keeps_messages = getsockopt(&fd, sockopt::SockType) == Ok(SockType::SeqPacket);
    if !keeps_messages {
        return Err(OpenError::NotADevice);
    }
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).map_err(Error::from)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(Error::from)?;
    let mtu = AtomicU16::new(mtu);
    let offload = Offload {
        vnet_hdr: true,
        tcp: true,
        udp: true,
    };
    Ok((StackSocket { fd, name, mtu }, offload))
}

#[derive(Debug)]
pub(super) struct StackSocket {
    fd: OwnedFd,
    name: String,
    /// In bytes.
    mtu: AtomicU16,
}

impl PacketIo for StackSocket {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(0) | Err(Errno::CONNRESET) => Err(deleted()),
            read => Ok(read?),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize> {
        match rustix::io::write(&self.fd, bytes) {
            // Rust programs ignore SIGPIPE.
            Err(Errno::PIPE | Errno::CONNRESET) => Err(deleted()),
            written => Ok(written?),
        }
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn wait_writable(&self, stop: &Stop) -> Result<bool> {
        stop.wait_or(self.fd.as_fd(), PollFlags::POLLOUT)
    }

    fn name(&self) -> Result<String> {
        Ok(self.name.clone())
    }

    fn mtu(&self) -> Result<u16> {
        Ok(self.mtu.load(Ordering::Relaxed))
    }

    fn set_mtu(&self, mtu: u16) -> Result<()> {
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    fn network_namespace(&self) -> Result<OwnedFd> {
        Err(Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// Returns the error of a TUN whose interface is deleted; a socket has it once its other end is closed.
fn deleted() -> Error {
    Error::from_raw_os_error(libc::EBADFD)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{AddressFamily, SockFlag, socketpair};

    use super::*;

    fn pair() -> (StackSocket, OwnedFd) {
        let flags = SockFlag::SOCK_CLOEXEC;
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
        let (ours, theirs) = pair.unwrap();
        let (device, offload) = adopt(ours, "wg0".to_owned(), 1280).unwrap();
        assert!(offload.vnet_hdr);
        (device, theirs)
    }

    fn errno<T: std::fmt::Debug>(result: Result<T>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn each_message_is_one_packet() {
        let (device, stack) = pair();
        assert_eq!(errno(device.read(&mut [0; 64])), Some(libc::EAGAIN));
        rustix::io::write(&stack, b"first").unwrap();
        rustix::io::write(&stack, b"second").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(device.read(&mut buffer).unwrap(), 5);
        assert_eq!(device.read(&mut buffer).unwrap(), 6);
        assert_eq!(device.write(b"answer").unwrap(), 6);
        assert_eq!(rustix::io::read(&stack, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"answer");
    }

    #[test]
    fn a_stack_that_has_ended_is_a_deleted_interface() {
        let (device, stack) = pair();
        drop(stack);
        assert_eq!(errno(device.read(&mut [0; 64])), Some(libc::EBADFD));
        assert_eq!(errno(device.write(b"packet")), Some(libc::EBADFD));
    }

    #[test]
    fn a_full_socket_is_a_full_interface() {
        let (device, _stack) = pair();
        let full = (0..10_000).find_map(|_| device.write(&[0; 1500]).err());
        assert_eq!(full.unwrap().raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn the_interface_is_what_the_program_says() {
        let (device, _stack) = pair();
        assert_eq!(device.name().unwrap(), "wg0");
        assert_eq!(device.mtu().unwrap(), 1280);
        device.set_mtu(1400).unwrap();
        assert_eq!(device.mtu().unwrap(), 1400);
        assert!(device.network_namespace().is_err());
    }

    #[test]
    fn a_socket_that_keeps_no_messages_apart_is_refused() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let adopted = adopt(stream.into(), "wg0".to_owned(), 1280);
        assert!(matches!(adopted, Err(OpenError::NotADevice)));
    }
}
