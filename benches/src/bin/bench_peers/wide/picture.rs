//! The plots of the wide set: what arrives by what is sent, one for each size of packets.

use convoy_benches::plot::{self, Colour, Figure, Panel, Scale};

use super::report::{BARE, Line, Report};

const COLOURS: [Colour; 7] = [
    Colour::Blue,
    Colour::Vermilion,
    Colour::Green,
    Colour::Purple,
    Colour::Orange,
    Colour::Sky,
    Colour::Black,
];

/// Each with its size in bytes.
pub(super) fn all(report: &Report) -> Vec<(usize, Figure)> {
    let drawn = report.curves.iter().filter(|line| !line.points.is_empty());
    let mut payloads: Vec<_> = drawn.map(|line| line.payload).collect();
    // They are in order.
    payloads.dedup();
    payloads
        .into_iter()
        .map(|payload| (payload, figure(report, payload)))
        .collect()
}

fn figure(report: &Report, payload: usize) -> Figure {
    let host = &report.header.host;
    Figure {
        title: format!("UDP, {payload} bytes: what arrives"),
        subtitle: format!(
            "{} × {} · Linux {} · {}",
            host.cpus,
            host.cpu.as_deref().unwrap_or("an unnamed CPU"),
            host.kernel,
            report.header.commit.as_deref().unwrap_or("unknown"),
        ),
        x_label: "sent (kpps)".to_owned(),
        x_scale: Scale::Linear,
        panels: vec![Panel {
            y_label: "arrived (kpps)".to_owned(),
            scale: Scale::Linear,
            lines: lines(report, payload),
        }],
        marks: Vec::new(),
    }
}

fn lines(report: &Report, payload: usize) -> Vec<plot::Line> {
    let is_shown = |line: &&Line| line.payload == payload && !line.points.is_empty();
    let shown = report.curves.iter().filter(is_shown);
    shown
        .map(|line| plot::Line {
            name: line.contestant.clone(),
            colour: colour(report, &line.contestant),
            points: line.points.clone(),
        })
        .collect()
}

/// The same in every plot.
fn colour(report: &Report, name: &str) -> Colour {
    let mut contestants = report.header.contestants.iter();
    let number = contestants.position(|one| one.name == name);
    match number {
        Some(number) if name != BARE => COLOURS[number % COLOURS.len()],
        Some(_) | None => Colour::Grey,
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_plot_has_a_line_for_whoever_has_a_curve() {
        let figures = all(&report());
        assert_eq!(figures.len(), 1);
        let (payload, figure) = &figures[0];
        assert_eq!(*payload, 64);
        let svg = plot::svg(figure).unwrap();
        for name in ["convoy", "wireguard-go", BARE] {
            assert!(svg.lines().any(|line| line == name), "{name}");
        }
        assert!(!svg.lines().any(|line| line == "openvpn"));
        let colours: Vec<_> = figure.panels[0]
            .lines
            .iter()
            .map(|line| line.colour)
            .collect();
        assert_eq!(colours, [Colour::Blue, Colour::Vermilion, Colour::Grey]);
    }
}
