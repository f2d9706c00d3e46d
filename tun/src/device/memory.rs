//! An in-memory device for tests and benches: the holder of its [`Kernel`] plays the kernel. Needs no root.
//!
//! Each raw read or write is one packet, with a virtio header before it if [`Offload::vnet_hdr`] is set.

use std::{
    collections::VecDeque,
    io::{Error, ErrorKind, Result},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Device, Offload, PacketIo, Stop};

/// Makes a device and the kernel behind it.
///
/// # Errors
/// When the process has no descriptor left.
pub fn pair(offload: Offload, mtu: u16) -> Result<(Device, Kernel)> {
    let twin = Arc::new(Twin {
        state: Mutex::new(State {
            mtu,
            ..State::default()
        }),
        written: Condvar::new(),
        readable: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
    });
    let io = Arc::clone(&twin) as Arc<dyn PacketIo>;
    Ok((Device { io, offload }, Kernel(twin)))
}

/// The kernel's side of a [`Device`] in memory.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<Twin>);

/// A fault injected into a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails with this `errno`, and the packet is lost.
    Errno(i32),
    /// Accepts only this many bytes (writes only).
    Short(usize),
}

impl Kernel {
    /// Queues `raw` for the device to read.
    pub fn send(&self, raw: &[u8]) {
        let mut state = self.0.lock();
        let mut buffer = state.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(raw);
        state.to_device.push_back(buffer);
        drop(state);
        self.0.wake_reader();
    }

    /// Waits for the next write of the device; `None` after `timeout`.
    pub fn receive(&self, timeout: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.lock();
        loop {
            if let Some(raw) = state.from_device.pop_front() {
                return Some(raw);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.0.written.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the buffer of a write for reuse, so that later packets need no allocation.
    pub fn recycle(&self, raw: Vec<u8>) {
        self.0.lock().spare.push(raw);
    }

    /// Packets that the device has not read yet.
    pub fn unread(&self) -> usize {
        self.0.lock().to_device.len()
    }

    /// Makes the `nth` read from now fail, and loses its packet. 0 is the next; reads of an empty queue do
    /// not count.
    pub fn fail_read(&self, nth: usize, errno: i32) {
        self.0.lock().read_faults.push((nth, Fault::Errno(errno)));
    }

    /// Makes the `nth` write from now fail; 0 is the next.
    pub fn fail_write(&self, nth: usize, fault: Fault) {
        self.0.lock().write_faults.push((nth, fault));
    }

    /// Sets whether writes fail with `EAGAIN`, as if the kernel had no room.
    pub fn hold_writes(&self, hold: bool) {
        self.0.lock().hold_writes = hold;
    }

    /// Deletes the interface: from now on every read and write fails with `EBADFD`.
    pub fn delete(&self) {
        self.0.lock().deleted = true;
        self.0.wake_reader();
    }
}

#[derive(Debug)]
struct Twin {
    state: Mutex<State>,
    written: Condvar,
    readable: EventFd,
}

#[derive(Debug, Default)]
struct State {
    to_device: VecDeque<Vec<u8>>,
    from_device: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    read_faults: Vec<(usize, Fault)>,
    write_faults: Vec<(usize, Fault)>,
    hold_writes: bool,
    deleted: bool,
    mtu: u16,
}

impl Twin {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cannot fail: the counter is read before it fills up.
    fn wake_reader(&self) {
        let _ = self.readable.write(1);
    }
}

impl PacketIo for Twin {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.lock();
        if state.deleted {
            return Err(Error::from_raw_os_error(libc::EBADFD));
        }
        let Some(raw) = state.to_device.pop_front() else {
            let _ = self.readable.read();
            return Err(Error::from_raw_os_error(libc::EAGAIN));
        };
        if let Some(Fault::Errno(errno)) = due(&mut state.read_faults) {
            return Err(Error::from_raw_os_error(errno));
        }
        // Truncate what does not fit, as the TUN driver does.
        let len = raw.len().min(buffer.len());
        buffer[..len].copy_from_slice(&raw[..len]);
        state.spare.push(raw);
        Ok(len)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut state = self.lock();
        if state.deleted {
            return Err(Error::from_raw_os_error(libc::EBADFD));
        }
        if state.hold_writes {
            return Err(Error::from_raw_os_error(libc::EAGAIN));
        }
        match due(&mut state.write_faults) {
            Some(Fault::Errno(errno)) => return Err(Error::from_raw_os_error(errno)),
            Some(Fault::Short(len)) => return Ok(len),
            None => {}
        }
        let mut buffer = state.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        state.from_device.push_back(buffer);
        self.written.notify_all();
        Ok(bytes.len())
    }

    fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn wait_writable(&self, stop: &Stop) -> Result<bool> {
        stop.pause()
    }

    fn name(&self) -> Result<String> {
        Ok("memory".to_owned())
    }

    fn mtu(&self) -> Result<u16> {
        Ok(self.lock().mtu)
    }

    fn set_mtu(&self, mtu: u16) -> Result<()> {
        self.lock().mtu = mtu;
        Ok(())
    }

    fn network_namespace(&self) -> Result<OwnedFd> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// Counts all faults down by one operation; removes and returns the one that is due now.
fn due(faults: &mut Vec<(usize, Fault)>) -> Option<Fault> {
    let position = faults.iter().position(|(nth, _)| *nth == 0);
    let fault = position.map(|position| faults.swap_remove(position).1);
    for (nth, _) in faults.iter_mut() {
        *nth = nth.saturating_sub(1);
    }
    fault
}
