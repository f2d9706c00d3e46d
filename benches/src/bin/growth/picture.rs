//! A plot for each axis.

use convoy_benches::{
    growth::{Axis, Quantity, Record, Series},
    plot::{Colour, Figure, Line, Panel, Scale},
};
use convoy_lab::measure::Sample;

/// Of an MTU, from the lowest on.
const COLOURS: [Colour; 2] = [Colour::Blue, Colour::Vermilion];

/// A panel for each figure that is shown along `axis`; those of which nothing was measured are left out.
pub(crate) fn of(record: &Record, axis: Axis) -> Figure {
    let along = record.along(axis);
    let mut panels: Vec<_> = axis
        .quantities()
        .iter()
        .map(|quantity| panel(axis, &along, quantity))
        .collect();
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points.is_empty()));
    Figure {
        title: format!("{}: how cost grows", axis.title()),
        subtitle: format!(
            "{} · {} rounds: medians; grey: lowest and highest",
            record.origin.line(),
            record.rounds
        ),
        x_label: axis.label().to_owned(),
        x_scale: axis.scale(),
        panels,
        marks: Vec::new(),
    }
}

fn panel(axis: Axis, along: &[(u32, &Series)], quantity: &Quantity) -> Panel {
    let lines = stretches(axis, along);
    let lines = lines.into_iter().zip(COLOURS.into_iter().cycle());
    Panel {
        y_label: quantity.name.to_owned(),
        scale: Scale::Linear,
        lines: lines
            .flat_map(|((name, series), colour)| median_and_range(name, colour, &series, quantity))
            .collect(),
    }
}

/// Sizes are joined where they went through the same tunnel; else all are.
fn stretches<'a>(axis: Axis, along: &[(u32, &'a Series)]) -> Vec<(String, Vec<(u32, &'a Series)>)> {
    if axis != Axis::PacketSize {
        return vec![(String::new(), along.to_vec())];
    }
    let mut mtus: Vec<_> = along.iter().map(|(_, series)| series.tunnel.mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    let of_mtu = |mtu| {
        let series = along.iter().copied();
        let series = series.filter(|(_, series)| series.tunnel.mtu == mtu);
        (format!("MTU {mtu}"), series.collect())
    };
    mtus.into_iter().map(of_mtu).collect()
}

/// The range first: the median is drawn over it.
fn median_and_range(
    name: String,
    colour: Colour,
    series: &[(u32, &Series)],
    quantity: &Quantity,
) -> [Line; 3] {
    let line = |name, colour, value: fn(&Sample) -> f64| Line {
        name,
        colour,
        points: series
            .iter()
            .filter_map(|&(place, series)| Some((f64::from(place), value(&(quantity.of)(series)?))))
            .collect(),
    };
    [
        line(String::new(), Colour::Grey, |sample| sample.min),
        line(String::new(), Colour::Grey, |sample| sample.max),
        line(name, colour, |sample| sample.median),
    ]
}

#[cfg(test)]
mod tests {
    use convoy_benches::plot;

    use super::*;

    fn record() -> Record {
        serde_json::from_str(include_str!("../../growth/example.json")).unwrap()
    }

    #[test]
    fn every_axis_is_drawn_with_all_its_figures() {
        for axis in Axis::ALL {
            let figure = of(&record(), axis);
            let svg = plot::svg(&figure).unwrap();
            for quantity in axis.quantities() {
                let is_named = svg.lines().any(|line| line == quantity.name);
                assert!(is_named, "{axis:?}: {}", quantity.name);
            }
            assert!(!svg.contains("NaN"), "{axis:?}");
        }
    }

    #[test]
    fn sizes_of_a_larger_mtu_are_a_line_of_their_own() {
        let figure = of(&record(), Axis::PacketSize);
        let named = figure.panels[0]
            .lines
            .iter()
            .filter(|line| !line.name.is_empty());
        let names: Vec<_> = named.map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["MTU 1420", "MTU 8920"]);
    }

    #[test]
    fn a_single_place_and_what_was_not_measured_can_be_drawn() {
        let mut record = record();
        record.series.retain(|series| series.test == "tcp-64");
        let figure = of(&record, Axis::Flows);
        assert!(!plot::svg(&figure).unwrap().contains("NaN"));
        record.series[0].cpu_s_per_gb = None;
        assert_eq!(of(&record, Axis::Flows).panels.len(), 1);
    }
}
