//! What arrives of UDP packets, by the rate at which they are sent.

use convoy_lab::measure::Host;
use serde::{Deserialize, Serialize};

use super::COLOURS;
use crate::plot::{Colour, Figure, Line, Panel, Scale};

/// As the bare veth is called among the curves.
pub const BARE: &str = "bare veth";

/// A curve of a plot.
#[derive(Debug, Serialize, Deserialize)]
pub struct Curve {
    /// Bytes in each packet.
    pub payload: usize,
    /// Who carried them.
    pub contestant: String,
    /// What was sent and what arrived of it, in kpps: medians over the repetitions that reached the rate.
    pub points: Vec<(f64, f64)>,
}

/// A plot for each of the [`sizes`], with that size.
#[must_use]
pub fn plots(
    curves: &[Curve],
    contestants: &[&str],
    host: &Host,
    commit: Option<&str>,
) -> Vec<(usize, Figure)> {
    let subtitle = format!("{host} · commit {}", commit.unwrap_or("unknown"));
    let figure = |payload| Figure {
        title: format!("UDP, {payload} bytes: what arrives"),
        subtitle: subtitle.clone(),
        x_label: "sent (kpps)".to_owned(),
        x_scale: Scale::Linear,
        panels: vec![Panel {
            y_label: "arrived (kpps)".to_owned(),
            scale: Scale::Linear,
            lines: lines(curves, contestants, payload),
        }],
        marks: Vec::new(),
    };
    sizes(curves)
        .into_iter()
        .map(|payload| (payload, figure(payload)))
        .collect()
}

/// The sizes of which anything was sent, in bytes. `curves` begin with the smallest.
#[must_use]
pub fn sizes(curves: &[Curve]) -> Vec<usize> {
    let drawn = curves.iter().filter(|curve| !curve.points.is_empty());
    let mut sizes: Vec<_> = drawn.map(|curve| curve.payload).collect();
    sizes.dedup();
    sizes
}

fn lines(curves: &[Curve], contestants: &[&str], payload: usize) -> Vec<Line> {
    let is_shown = |curve: &&Curve| curve.payload == payload && !curve.points.is_empty();
    let line = |curve: &Curve| Line {
        name: curve.contestant.clone(),
        colour: colour(contestants, &curve.contestant),
        points: curve.points.clone(),
    };
    curves.iter().filter(is_shown).map(line).collect()
}

/// The same in every plot.
fn colour(contestants: &[&str], name: &str) -> Colour {
    let number = contestants.iter().position(|one| *one == name);
    match number {
        Some(number) if name != BARE => COLOURS[number % COLOURS.len()],
        Some(_) | None => Colour::Grey,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot;

    #[test]
    fn every_size_has_one_plot_with_a_line_for_whoever_has_a_curve() {
        let curve = |payload, contestant: &str, points: &[(f64, f64)]| Curve {
            payload,
            contestant: contestant.to_owned(),
            points: points.to_vec(),
        };
        let curves = [
            curve(64, "convoy", &[(25.0, 25.0), (50.0, 49.0)]),
            curve(64, "wireguard-go", &[(25.0, 22.0)]),
            curve(64, "openvpn", &[]),
            curve(64, BARE, &[(25.0, 25.0)]),
            curve(512, "convoy", &[]),
            curve(1_200, "convoy", &[(25.0, 20.0)]),
        ];
        let contestants = ["convoy", "wireguard-go", "openvpn"];
        let plots = plots(&curves, &contestants, &Host::of_this_machine(), None);
        let payloads: Vec<_> = plots.iter().map(|(payload, _)| *payload).collect();
        assert_eq!(payloads, [64, 1_200]);
        let lines = &plots[0].1.panels[0].lines;
        let drawn: Vec<_> = lines
            .iter()
            .map(|line| (&line.name[..], line.colour))
            .collect();
        let expected = [
            ("convoy", Colour::Blue),
            ("wireguard-go", Colour::Orange),
            (BARE, Colour::Grey),
        ];
        assert_eq!(drawn, expected);
        assert!(plot::svg(&plots[0].1).is_ok());
    }
}
