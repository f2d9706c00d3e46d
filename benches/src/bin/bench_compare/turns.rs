//! Two sides in turns: what drifts with time then favours neither.

/// What each side gives, round by round; each goes first in every other round. `run` is told which it is.
pub(crate) fn in_turns<T>(
    rounds: u32,
    what: &str,
    mut run: impl FnMut(usize) -> anyhow::Result<T>,
) -> anyhow::Result<[Vec<T>; 2]> {
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        eprintln!("{what}: round {} of {rounds}", round + 1);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            runs[side].push(run(side)?);
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_goes_first_in_every_other_round() {
        let mut order = Vec::new();
        let runs = in_turns(3, "test", |side| {
            order.push(side);
            Ok(order.len())
        });
        assert_eq!(runs.unwrap(), [vec![1, 4, 5], vec![2, 3, 6]]);
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
    }
}
