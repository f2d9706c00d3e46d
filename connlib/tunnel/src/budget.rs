//! Fairness as a type: a bound of one kind of work within a tick.

/// A number of units that can be spent once.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) fn new(units: usize) -> Self {
        Self(units)
    }

    /// Spends one unit; returns false if none is left.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once() {
        let mut budget = Budget::new(2);
        assert!(budget.spend() && budget.spend());
        assert!(!budget.spend() && !budget.spend());
    }
}
