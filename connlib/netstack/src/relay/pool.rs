//! Buffers and pipes, held only while bytes move.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};

/// Most items that are kept for the next taker; those given back beyond it are freed.
const MAX_KEPT: usize = 32;

/// A bounded pool. A taker that finds it empty makes do with something smaller.
#[derive(Debug)]
pub(super) struct Pool<T> {
    kept: Mutex<Vec<T>>,
    lent: AtomicUsize,
    most_lent: usize,
    size: usize,
}

/// Memory for bytes that pass through this process.
pub(super) type Buffers = Pool<Box<[u8]>>;
/// Memory of the kernel.
pub(super) type Pipes = Pool<Pipe>;

/// Can be made in any size.
pub(super) trait Pooled: Sized {
    /// Most bytes that lent items have together.
    const MAX_LENT_BYTES: usize;

    fn make(size: usize) -> io::Result<Self>;
}

/// An item of a pool. Dropping it frees the item; [`Lease::give_back`] keeps it.
#[derive(Debug)]
pub(super) struct Lease<'a, T> {
    item: Option<T>,
    pool: &'a Pool<T>,
}

/// An empty pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
}

impl<T: Pooled> Pool<T> {
    pub(super) fn new(size: usize) -> Self {
        Self {
            kept: Mutex::default(),
            lent: AtomicUsize::new(0),
            most_lent: T::MAX_LENT_BYTES / size,
            size,
        }
    }

    /// Lends nothing.
    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self {
            most_lent: 0,
            ..Self::new(super::MIN_BUFFER)
        }
    }

    /// Most items that exist at the same time.
    pub(super) fn most(&self) -> usize {
        self.most_lent + MAX_KEPT
    }

    /// Bytes that an item holds.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// An item; none if too many are lent, or if the kernel refuses another.
    pub(super) fn take(&self) -> Option<Lease<'_, T>> {
        if self.lent.fetch_add(1, Ordering::Relaxed) >= self.most_lent {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        // From here on, dropping the lease ends it.
        let mut lease = Lease {
            item: None,
            pool: self,
        };
        let kept = self.kept().pop();
        lease.item = kept.or_else(|| T::make(self.size).ok());
        lease.item.is_some().then_some(lease)
    }
}

impl<T> Pool<T> {
    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }
}

impl<T> Lease<'_, T> {
    pub(super) fn give_back(mut self) {
        let mut kept = self.pool.kept();
        if kept.len() < MAX_KEPT {
            kept.extend(self.item.take());
        }
    }
}

impl<T> std::ops::Deref for Lease<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.item
            .as_ref()
            .expect("INVARIANT: a lease has its item until it is given back")
    }
}

impl<T> std::ops::DerefMut for Lease<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.item
            .as_mut()
            .expect("INVARIANT: a lease has its item until it is given back")
    }
}

impl<T> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        self.pool.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pooled for Box<[u8]> {
    const MAX_LENT_BYTES: usize = 64 << 20;

    fn make(size: usize) -> io::Result<Self> {
        Ok(vec![0; size].into())
    }
}

impl Pooled for Pipe {
    // The kernel makes the pipes of a user who has many of them smaller (pipe-user-pages-soft, pipe(7)).
    const MAX_LENT_BYTES: usize = 256 << 20;

    fn make(size: usize) -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        // Refused to such a user: then it has the kernel's default size, or less.
        let _ = fcntl(writer.as_fd(), FcntlArg::F_SETPIPE_SZ(size as i32));
        Ok(Self { reader, writer })
    }
}
