//! An amount of which one tenant gets at most half.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A rule or a peer. Its connections together get at most half of everything that a relay lends.
#[derive(Debug, Default)]
pub struct Tenant {
    pub(super) buffers: AtomicUsize,
    pub(super) pipes: AtomicUsize,
    /// In bytes.
    pub(super) parked: AtomicUsize,
}

/// An amount, and how much of it is taken.
#[derive(Debug)]
pub(super) struct Budget {
    taken: AtomicUsize,
    most: usize,
}

/// A part of a budget. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    budget: &'a Budget,
    of_tenant: &'a AtomicUsize,
    count: usize,
}

/// Why there is nothing to lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// The tenant has its half.
    Tenant,
    /// All tenants together have everything.
    All,
    /// The kernel refuses more.
    Kernel,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            most,
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes a part for the tenant that has taken `of_tenant` so far.
    pub(super) fn take<'a>(
        &'a self,
        count: usize,
        of_tenant: &'a AtomicUsize,
    ) -> Result<Taken<'a>, Shortage> {
        let before = of_tenant.fetch_add(count, Ordering::Relaxed);
        let before_of_all = self.taken.fetch_add(count, Ordering::Relaxed);
        // From here on, dropping it gives the part back.
        let taken = Taken {
            budget: self,
            of_tenant,
            count,
        };
        if before + count > self.most / 2 {
            return Err(Shortage::Tenant);
        }
        if before_of_all + count > self.most {
            return Err(Shortage::All);
        }
        Ok(taken)
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.of_tenant.fetch_sub(self.count, Ordering::Relaxed);
        self.budget.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_gets_half_and_all_together_no_more_than_there_is() {
        let budget = Budget::new(10);
        let tenants: [AtomicUsize; 3] = Default::default();
        let first = budget.take(5, &tenants[0]).unwrap();
        let refused = |count, tenant: &AtomicUsize| budget.take(count, tenant).err();
        assert_eq!(refused(1, &tenants[0]), Some(Shortage::Tenant));
        let _second = budget.take(4, &tenants[1]).unwrap();
        assert_eq!(refused(2, &tenants[2]), Some(Shortage::All));
        drop(first);
        assert_eq!(budget.taken(), 4);
        let _third = budget.take(5, &tenants[2]).unwrap();
        assert_eq!(
            tenants.each_ref().map(|it| it.load(Ordering::Relaxed)),
            [0, 4, 5]
        );
    }
}
