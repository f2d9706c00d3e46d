//! Fewer points than there are, with every peak kept.

/// Most points of a line: more than a screen has columns.
pub(super) const MOST_POINTS: usize = 2_000;

/// The points, or of each of many equal stretches the lowest and the highest.
pub(super) fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(MOST_POINTS / 2);
    points.chunks(stretch).flat_map(extremes).collect()
}

/// The lowest and the highest point, in order of time.
fn extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let lowest = points.iter().min_by(by_value);
    let highest = points.iter().max_by(by_value);
    let mut both: Vec<_> = lowest.into_iter().chain(highest).copied().collect();
    both.sort_by(|a, b| a.0.total_cmp(&b.0));
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_are_all_kept() {
        let points: Vec<_> = (0..600).map(|i| (f64::from(i), 1.0)).collect();
        assert_eq!(thin(&points), points);
    }

    #[test]
    fn a_day_is_thinned_and_keeps_its_peaks() {
        let value = |second| match second {
            40_000 => 99.0,
            70_000 => -99.0,
            _ => 1.0,
        };
        let points: Vec<_> = (0..86_400).map(|s| (f64::from(s), value(s))).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= MOST_POINTS, "{}", thinned.len());
        assert!(thinned.contains(&(40_000.0, 99.0)));
        assert!(thinned.contains(&(70_000.0, -99.0)));
        assert!(thinned.is_sorted_by(|a, b| a.0 <= b.0));
    }
}
