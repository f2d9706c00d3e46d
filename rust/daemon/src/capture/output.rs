//! The file or pipe that a capture is written to.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
    sync::Arc,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signalfd::SignalFd,
    unistd::geteuid,
};

/// Permissions of a capture: packets that were private in the tunnel are for the owner alone.
const FOR_OWNER: u32 = 0o600;

/// Bytes for which a writable pipe always has room (`PIPE_BUF`).
const ROOM: usize = 4096;

/// Time in milliseconds for the reader of a pipe to go on, once the capture is interrupted.
const PATIENCE: u16 = 1_000;

/// Opens the file, or standard output for `-`. A pipe waits for its reader here.
///
/// # Errors
/// If the file cannot be opened, or belongs to another user.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if path == Path::new("-") {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    let mut options = OpenOptions::new();
    // Truncated below, so that another user's file stays as it is.
    options.write(true).create(true).truncate(false);
    let file = options.mode(FOR_OWNER).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        if metadata.uid() != geteuid().as_raw() {
            return Err(io::Error::other(
                "it belongs to another user, who could read the packets (fix: remove it first)",
            ));
        }
        file.set_permissions(Permissions::from_mode(FOR_OWNER))?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// Writes to a file; a pipe whose reader has stopped keeps nobody from ending the capture.
pub(super) struct Output {
    file: File,
    /// Readable once the capture is interrupted; `None` for what never waits.
    interrupts: Option<Arc<SignalFd>>,
}

impl Output {
    pub(super) fn new(file: File, interrupts: &Arc<SignalFd>) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let waits = kind.is_fifo() || kind.is_socket() || kind.is_char_device();
        let interrupts = waits.then(|| Arc::clone(interrupts));
        Ok(Self { file, interrupts })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(interrupts) = &self.interrupts else {
            return self.file.write(bytes);
        };
        loop {
            await_room(&self.file, interrupts)?;
            match self.file.write(&bytes[..bytes.len().min(ROOM)]) {
                // Another program may have made the pipe non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until a write does not.
fn await_room(file: &File, interrupts: &SignalFd) -> io::Result<()> {
    let room = || PollFd::new(file.as_fd(), PollFlags::POLLOUT);
    let has_room = |it: &PollFd<'_>| it.any().unwrap_or(true);
    let mut both = [room(), PollFd::new(interrupts.as_fd(), PollFlags::POLLIN)];
    poll(&mut both, PollTimeout::NONE)?;
    if has_room(&both[0]) {
        return Ok(());
    }
    // Packets from before the interrupt belong to the capture if the reader resumes.
    match poll(&mut [room()], PollTimeout::from(PATIENCE))? {
        0 => Err(io::Error::other("its reader has stopped reading")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _, os::fd::OwnedFd, thread};

    use nix::{
        fcntl::{FcntlArg, OFlag, fcntl},
        sys::{
            signal::{SigSet, Signal, raise},
            signalfd::SfdFlags,
        },
        unistd::{Uid, chown},
    };

    use super::*;

    #[test]
    fn a_file_that_others_could_read_is_for_the_owner_alone_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.pcapng");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        open(&path).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, FOR_OWNER);
        assert_eq!(metadata.len(), 0);
    }

    #[test]
    fn a_file_of_another_user_is_refused_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.pcapng");
        fs::write(&path, "theirs").unwrap();
        if let Err(errno) = chown(&path, Some(Uid::from_raw(65_534)), None) {
            eprintln!("SKIPPED a_file_of_another_user_is_refused_and_stays_as_it_is: {errno}");
            return;
        }
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
    }

    #[test]
    fn a_reader_that_has_stopped_does_not_hold_up_the_end() {
        let interrupts = interrupted();
        let (_reader, writer) = io::pipe().unwrap();
        let mut output = Output::new(OwnedFd::from(writer).into(), &interrupts).unwrap();
        let error = output.write_all(&[0; 1 << 20]).unwrap_err();
        assert!(error.to_string().contains("stopped reading"), "{error}");
    }

    #[test]
    fn a_reader_that_goes_on_gets_everything_even_after_an_interrupt() {
        let interrupts = interrupted();
        let (mut reader, writer) = io::pipe().unwrap();
        // As if another program shared it.
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut output = Output::new(OwnedFd::from(writer).into(), &interrupts).unwrap();
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read.len())
        });
        output.write_all(&[0; 1 << 20]).unwrap();
        drop(output);
        assert_eq!(reading.join().unwrap().unwrap(), 1 << 20);
    }

    /// Signals of this thread, which has one.
    fn interrupted() -> Arc<SignalFd> {
        let signals = SigSet::from(Signal::SIGTERM);
        signals.thread_block().unwrap();
        raise(Signal::SIGTERM).unwrap();
        Arc::new(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).unwrap())
    }
}
