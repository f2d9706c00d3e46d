//! The plots of a run.

use convoy_benches::plot::{Colour, Figure, Line, Panel, Scale};

use crate::{
    point::{Method, PathKind, Point, Ports, SinkKind},
    record::{Record, Series},
};

/// Each with the name of its file.
pub(crate) fn all(record: &Record) -> [(&'static str, Figure); 3] {
    [
        (
            "packet_rate_by_size.svg",
            by_size(record, "kpps", Series::kpps),
        ),
        (
            "bandwidth_by_size.svg",
            by_size(record, "Gbit/s", Series::gbps),
        ),
        ("packet_rate_by_threads.svg", by_threads(record)),
    ]
}

/// One thread; a panel for each path and sink.
fn by_size(record: &Record, unit: &str, figure: fn(&Series) -> Option<f64>) -> Figure {
    let panels = combinations(SinkKind::ALL).map(|(path, sink)| {
        let is_shown = move |point: &Point| {
            let by_one = point.threads == 1 && point.ports == Ports::Own;
            by_one && point.path == path && point.sink == sink
        };
        let lines = lines(record, is_shown, |series| series.point.size, figure);
        panel(format!("{path}, {sink} ({unit})"), lines)
    });
    let title = format!("UDP from one thread: {unit} by size");
    of(record, title, "bytes of payload", panels.collect())
}

/// One size; a panel for each path, with a port for each thread, and with one for all.
fn by_threads(record: &Record) -> Figure {
    let size = record.series.iter().find(|series| series.point.threads > 1);
    let size = size.map_or(0, |series| series.point.size);
    let panels = combinations(Ports::ALL).map(|(path, ports)| {
        let is_shown = move |point: &Point| {
            let same_size = point.size == size && point.sink == SinkKind::Closed;
            same_size && point.path == path && point.ports == ports
        };
        let lines = lines(
            record,
            is_shown,
            |series| series.point.threads,
            Series::kpps,
        );
        panel(format!("{path}, {ports} (kpps)"), lines)
    });
    let title = format!("UDP, {size} bytes to a closed port: kpps by threads");
    of(record, title, "threads", panels.collect())
}

fn combinations<T: Copy + 'static>(second: [T; 2]) -> impl Iterator<Item = (PathKind, T)> {
    PathKind::ALL
        .into_iter()
        .flat_map(move |path| second.into_iter().map(move |other| (path, other)))
}

/// A line for each method.
fn lines(
    record: &Record,
    is_shown: impl Fn(&Point) -> bool,
    x: fn(&Series) -> usize,
    y: fn(&Series) -> Option<f64>,
) -> Vec<Line> {
    let colours = [Colour::Green, Colour::Vermilion, Colour::Blue];
    let methods = Method::ALL.into_iter().zip(colours);
    methods
        .map(|(method, colour)| {
            let shown = record
                .series
                .iter()
                .filter(|series| is_shown(&series.point) && series.point.method == method);
            let mut points: Vec<_> = shown
                .filter_map(|series| Some((x(series) as f64, y(series)?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line {
                name: method.to_string(),
                colour,
                points,
            }
        })
        .collect()
}

fn panel(y_label: String, lines: Vec<Line>) -> Panel {
    Panel {
        y_label,
        // What the methods reach is a hundredfold apart.
        scale: Scale::Logarithmic,
        lines,
    }
}

/// Panels of which nothing was measured are left out.
fn of(record: &Record, title: String, x_label: &str, mut panels: Vec<Panel>) -> Figure {
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points.is_empty()));
    Figure {
        title,
        subtitle: record.origin.line(),
        x_label: x_label.to_owned(),
        x_scale: if x_label == "threads" {
            Scale::Linear
        } else {
            Scale::Logarithmic
        },
        panels,
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use convoy_benches::plot;

    use super::*;
    use crate::record::tests::record;

    #[test]
    fn every_path_sink_and_method_is_drawn() {
        for (name, figure) in all(&record()) {
            assert_eq!(figure.panels.len(), 4, "{name}");
            let svg = plot::svg(&figure).unwrap();
            for method in Method::ALL {
                let method = method.to_string();
                assert!(svg.lines().any(|line| line == method), "{name}: {method}");
            }
        }
    }

    #[test]
    fn without_a_veth_there_are_two_panels() {
        let mut record = record();
        record
            .series
            .retain(|series| series.point.path == PathKind::Loopback);
        for (name, figure) in all(&record) {
            assert_eq!(figure.panels.len(), 2, "{name}");
        }
    }
}
