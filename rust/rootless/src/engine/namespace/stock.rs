//! Sockets that were made ahead.

use std::{
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use convoy_network::{Family, SocketKind};

/// Sockets of each kind and family that are ready, once one has been needed; more are made when half of them are left.
pub(super) const READY: usize = 32;

/// Unused sockets by kind and family.
#[derive(Debug, Default)]
pub(super) struct Stock([Mutex<Vec<OwnedFd>>; 4]);

impl Stock {
    /// Takes a socket, if there is one, and tells whether few are left.
    pub(super) fn take(&self, kind: SocketKind, family: Family) -> Option<(OwnedFd, bool)> {
        let mut sockets = self.of(kind, family);
        let socket = sockets.pop()?;
        Some((socket, sockets.len() == READY / 2))
    }

    pub(super) fn add(&self, kind: SocketKind, family: Family, more: Vec<OwnedFd>) {
        self.of(kind, family).extend(more);
    }

    pub(super) fn len(&self, kind: SocketKind, family: Family) -> usize {
        self.of(kind, family).len()
    }

    fn of(&self, kind: SocketKind, family: Family) -> MutexGuard<'_, Vec<OwnedFd>> {
        let kind = usize::from(kind == SocketKind::Udp);
        let family = usize::from(family == Family::V6);
        let sockets = &self.0[2 * kind + family];
        sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn kinds_are_kept_apart_and_more_are_wanted_once_when_half_are_left() {
        let stock = Stock::default();
        let (tcp, v4) = (SocketKind::Tcp, Family::V4);
        assert!(stock.take(tcp, v4).is_none());
        let made = (0..READY).map(|_| File::open("/dev/null").unwrap().into());
        stock.add(tcp, v4, made.collect());
        assert!(stock.take(tcp, Family::V6).is_none());
        assert!(stock.take(SocketKind::Udp, v4).is_none());
        let wanted: Vec<_> = (0..READY).map(|_| stock.take(tcp, v4).unwrap().1).collect();
        let asked = wanted.iter().position(|is_low| *is_low);
        assert_eq!(asked, Some(READY / 2 - 1));
        assert_eq!(wanted.iter().filter(|is_low| **is_low).count(), 1);
        assert_eq!(stock.len(tcp, v4), 0);
    }
}
