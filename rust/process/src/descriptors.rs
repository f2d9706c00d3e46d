//! Hands open descriptors to another process over a Unix socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The most descriptors that one message carries.
pub const MOST: usize = 64;

/// Sends the first of `bytes`, at least one, with `descriptors`; returns how many went.
///
/// # Errors
/// `InvalidInput` for more than [`MOST`] descriptors, and those of sendmsg(2).
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    // There may be room for more, as the space is padded.
    if descriptors.len() > MOST || !control.push(rights) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let slices = [IoSlice::new(bytes)];
    let send = || sendmsg(&socket, &slices, &mut control, SendFlags::NOSIGNAL);
    Ok(retry_on_intr(send)?)
}

/// Receives bytes into `buffer` and returns their number, with the descriptors that came with them. These close in
/// programs that this process executes. `None` if more than [`MOST`] came, or this process has none left: the bytes have
/// arrived even so, and the descriptors are closed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive_with(socket, buffer, RecvFlags::empty())
}

/// As [`receive`], but never waits, even if the process at the other end has opened this socket, and has made its
/// calls wait.
///
/// # Errors
/// Also `WouldBlock`.
pub fn try_receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive_with(socket, buffer, RecvFlags::DONTWAIT)
}

/// Number of bytes, and the descriptors if they could be received.
type Received = (usize, Option<Vec<OwnedFd>>);

fn receive_with(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let received = retry_on_intr(|| recvmsg(&socket, &mut slices, &mut control, flags))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > MOST;
    Ok((received.bytes, (!is_cut).then_some(descriptors)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    #[test]
    fn descriptors_arrive_open_and_do_not_outlive_an_exec() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        assert_eq!(send(&ours, b"x", &[writer.as_fd()]).unwrap(), 1);
        drop(writer);
        let (length, received) = receive(&theirs, &mut [0; 8]).unwrap();
        let [received] = <[OwnedFd; 1]>::try_from(received.unwrap()).unwrap();
        assert_eq!(length, 1);
        assert!(fcntl_getfd(&received).unwrap().contains(FdFlags::CLOEXEC));
        File::from(received).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn several_keep_their_order_and_too_many_are_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let all = [reader.as_fd(), writer.as_fd(), theirs.as_fd(), ours.as_fd()];
        let most: Vec<_> = all.into_iter().cycle().take(MOST).collect();
        send(&ours, b"x", &most).unwrap();
        let received = receive(&theirs, &mut [0; 8]).unwrap().1.unwrap();
        let same = |a: BorrowedFd<'_>, b: &OwnedFd| {
            let of = |fd: BorrowedFd<'_>| nix::sys::stat::fstat(fd).unwrap().st_ino;
            of(a) == of(b.as_fd())
        };
        assert_eq!(received.len(), MOST);
        assert!(most.into_iter().zip(&received).all(|(a, b)| same(a, b)));
        let too_many = [reader.as_fd(); MOST + 1];
        send(&ours, b"x", &too_many).unwrap_err();
    }
}
