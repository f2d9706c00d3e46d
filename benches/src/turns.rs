//! Turns: what drifts with time, and what comes before, then favours nobody.

/// All of `all`, from another one on in each round: each is at each place about equally often.
pub fn turned<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let first = round as usize % all.len().max(1);
    let (before, from) = all.split_at(first);
    from.iter().chain(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one() {
        let order = |round| turned(&["a", "b", "c"], round).copied().collect::<String>();
        assert_eq!([order(0), order(1), order(5)], ["abc", "bca", "cab"]);
        assert_eq!(turned::<u8>(&[], 3).count(), 0);
    }
}
