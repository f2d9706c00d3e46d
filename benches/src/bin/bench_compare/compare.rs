//! What is a change, and what is noise.

use convoy_benches::origin::Origin;
use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

/// The least that is called noise: what a run does not resolve, whatever one other run says.
const LEAST_NOISE: f64 = 0.01;

/// Everything that was found: the JSON file, and the source of the table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) origin: Origin,
    /// The commit that this tree is compared with.
    pub(crate) base: Option<String>,
    pub(crate) rounds: u32,
    pub(crate) rows: Vec<Row>,
}

/// One stage, or the tunnel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) figure: Figure,
    /// Without a base, the head's.
    pub(crate) base: Option<Sample>,
    pub(crate) head: Option<Sample>,
    /// The furthest from 1 that a ratio of the base to itself was, in any round.
    pub(crate) noise: Option<f64>,
    /// The head divided by the base, within each round.
    pub(crate) compared: Option<Sample>,
    pub(crate) verdict: Verdict,
    pub(crate) instructions: Instructions,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Figure {
    Nanoseconds,
    GigabitsPerSecond,
    CpuSecondsPerGigabyte,
}

/// Of one repetition, where they were counted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Instructions {
    pub(crate) base: Option<f64>,
    pub(crate) head: Option<f64>,
}

/// What may be said of the times. Instructions speak for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Better,
    Worse,
    /// Within the noise, or not in the same direction in all rounds.
    NoChange,
    /// Only one side has it.
    NotCompared,
}

impl Row {
    /// `itself` are two series of the base, `compared` one of the base and one of the head; each
    /// has a value a round.
    pub(crate) fn new(
        name: String,
        figure: Figure,
        itself: [Vec<f64>; 2],
        compared: Option<[Vec<f64>; 2]>,
    ) -> Self {
        let noise = noise(&itself);
        let ratio = compared
            .as_ref()
            .and_then(|[base, head]| Sample::of_ratios(head, base));
        let [base, head] = match compared {
            Some(sides) => sides.map(Sample::of),
            None => [Sample::of(itself.concat()), None],
        };
        Self {
            name,
            figure,
            base,
            head,
            noise,
            verdict: verdict(figure, ratio.as_ref(), noise),
            compared: ratio,
            instructions: Instructions::default(),
        }
    }
}

impl Figure {
    fn more_is_better(self) -> bool {
        self == Self::GigabitsPerSecond
    }
}

fn noise([a, b]: &[Vec<f64>; 2]) -> Option<f64> {
    let ratios = Sample::of_ratios(a, b)?;
    let distances = ratios.values.iter().map(|ratio| distance(*ratio));
    Some(distances.fold(LEAST_NOISE, f64::max))
}

/// How far a ratio is from 1, either way the same: of 2 as of ½.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio) - 1.0
}

fn verdict(figure: Figure, ratio: Option<&Sample>, noise: Option<f64>) -> Verdict {
    let (Some(ratio), Some(noise)) = (ratio, noise) else {
        return Verdict::NotCompared;
    };
    let is_beyond_noise = distance(ratio.median) > noise;
    let is_unanimous = ratio.min > 1.0 || ratio.max < 1.0;
    if !is_beyond_noise || !is_unanimous {
        return Verdict::NoChange;
    }
    if (ratio.median > 1.0) == figure.more_is_better() {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: Figure, itself: [[f64; 3]; 2], compared: [[f64; 3]; 2]) -> Row {
        let sides = |sides: [[f64; 3]; 2]| sides.map(|values| values.to_vec());
        Row::new("a".to_owned(), figure, sides(itself), Some(sides(compared)))
    }

    const STEADY: [[f64; 3]; 2] = [[10.0; 3]; 2];

    #[test]
    fn nothing_below_the_noise_is_a_change() {
        let noisy = [[10.0, 10.0, 11.0], [10.0; 3]];
        let faster = [[10.0; 3], [9.2, 9.2, 9.2]];
        let time = Figure::Nanoseconds;
        let found = row(time, noisy, faster);
        assert!((found.noise.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(found.verdict, Verdict::NoChange);
        assert_eq!(row(time, STEADY, faster).verdict, Verdict::Better);
        let hardly = [[10.0; 3], [9.95; 3]];
        assert_eq!(row(time, STEADY, hardly).verdict, Verdict::NoChange);
    }

    #[test]
    fn a_change_that_not_every_round_shows_is_none() {
        let mixed = [[10.0; 3], [8.0, 8.0, 10.1]];
        assert_eq!(
            row(Figure::Nanoseconds, STEADY, mixed).verdict,
            Verdict::NoChange
        );
    }

    #[test]
    fn more_throughput_is_better_and_more_time_is_worse() {
        let more = [[10.0; 3], [12.0; 3]];
        let verdict = |figure| row(figure, STEADY, more).verdict;
        assert_eq!(verdict(Figure::GigabitsPerSecond), Verdict::Better);
        assert_eq!(verdict(Figure::CpuSecondsPerGigabyte), Verdict::Worse);
        assert_eq!(verdict(Figure::Nanoseconds), Verdict::Worse);
    }

    #[test]
    fn noise_is_the_same_either_way() {
        assert_eq!(noise(&[vec![5.0], vec![10.0]]), Some(1.0));
        assert_eq!(noise(&[vec![10.0], vec![5.0]]), Some(1.0));
        assert_eq!(noise(&[vec![], vec![]]), None);
    }

    #[test]
    fn a_stage_that_the_base_does_not_have_is_not_compared() {
        let series = || vec![10.0];
        let itself = [series(), series()];
        let row = Row::new("a".to_owned(), Figure::Nanoseconds, itself, None);
        assert_eq!(row.verdict, Verdict::NotCompared);
        assert_eq!(row.base.unwrap().median, 10.0);
    }
}
