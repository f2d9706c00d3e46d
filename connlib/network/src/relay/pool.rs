//! Buffers and pipes, held only while bytes move.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError, atomic::AtomicUsize},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};

use super::budget::{Budget, Shortage, Taken};

/// Most items that are kept for the next taker; those given back beyond it are freed.
const MAX_KEPT: usize = 32;

/// A bounded pool. A taker that finds it empty makes do with something smaller.
#[derive(Debug)]
pub(super) struct Pool<T> {
    kept: Mutex<Vec<T>>,
    lent: Budget,
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
    _taken: Taken<'a>,
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
            lent: Budget::new(T::MAX_LENT_BYTES / size),
            size,
        }
    }

    /// Lends this many small items.
    #[cfg(test)]
    pub(super) fn with(most: usize) -> Self {
        Self {
            lent: Budget::new(most),
            ..Self::new(super::outcome::MIN_BUFFER)
        }
    }

    /// Most items that exist at the same time.
    pub(super) fn most(&self) -> usize {
        self.lent.most() + MAX_KEPT
    }

    /// Bytes that an item holds.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Lends an item to the tenant that has `of_tenant` of them.
    pub(super) fn take<'a>(&'a self, of_tenant: &'a AtomicUsize) -> Result<Lease<'a, T>, Shortage> {
        let taken = self.lent.take(1, of_tenant)?;
        let kept = self.kept().pop();
        let item = match kept {
            Some(item) => item,
            None => T::make(self.size).map_err(|_| Shortage::Kernel)?,
        };
        Ok(Lease {
            item: Some(item),
            pool: self,
            _taken: taken,
        })
    }
}

impl<T> Pool<T> {
    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of items that wait for the next taker.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.kept().len()
    }

    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.lent.taken()
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

impl Pooled for Box<[u8]> {
    /// Most bytes that lent buffers have together.
    const MAX_LENT_BYTES: usize = 64 << 20;

    fn make(size: usize) -> io::Result<Self> {
        Ok(vec![0; size].into())
    }
}

impl Pooled for Pipe {
    /// Most bytes that lent pipes have together: half of what those of one user may have before the kernel makes all further ones smaller, those of other
    /// programs as well (pipe-user-pages-soft, pipe(7)).
    const MAX_LENT_BYTES: usize = 32 << 20;

    /// Fails if it would be smaller: memory of this process is faster, and leaves the rest to others.
    fn make(size: usize) -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        fcntl(writer.as_fd(), FcntlArg::F_SETPIPE_SZ(size as i32))?;
        Ok(Self { reader, writer })
    }
}
