//! The plot of a run.

use convoy_benches::plot::{Colour, Figure, Line, Mark, Panel, Scale};

use crate::{
    events::{Event, Kind},
    probe::Latency,
    record::{Record, Sample},
};

/// Goodput, latency, memory, descriptors and drops over time, with marks for the events.
pub(crate) fn of(record: &Record) -> Figure {
    let line = |name: &str, colour, value: &dyn Fn(&Sample) -> f64| Line {
        name: name.to_owned(),
        colour,
        points: record.samples.iter().map(|s| (s.at_s, value(s))).collect(),
    };
    let latency = |of: fn(Latency) -> Option<f64>| {
        move |sample: &Sample| sample.latency.and_then(of).unwrap_or(f64::NAN)
    };
    let by_daemon = |value: fn(&Sample, usize) -> f64| {
        let names = ["hub", "spokes", "", "", ""];
        // The hub's line is drawn last, above the others.
        let daemons = names
            .iter()
            .enumerate()
            .take(record.header.daemons.len())
            .rev();
        daemons
            .map(|(number, name)| {
                let colour = if number == 0 {
                    Colour::Blue
                } else {
                    Colour::Grey
                };
                line(name, colour, &|sample| value(sample, number))
            })
            .collect()
    };
    let drops = |sample: &Sample| {
        sample
            .drops
            .values()
            .flat_map(|by| by.values())
            .sum::<u64>()
    };
    let panel = |y_label: &str, scale, lines| Panel {
        y_label: y_label.to_owned(),
        scale,
        lines,
    };
    Figure {
        title: title(record),
        subtitle: record.header.origin.line(),
        x_label: "time (s)".to_owned(),
        x_scale: Scale::Linear,
        panels: vec![
            panel(
                "TCP goodput (Mbit/s)",
                Scale::Linear,
                vec![
                    line("spokes to hub", Colour::Blue, &|sample| sample.up_mbps),
                    line("hub to spokes", Colour::Vermilion, &|sample| {
                        sample.down_mbps
                    }),
                ],
            ),
            panel(
                "round trip (ms)",
                Scale::Logarithmic,
                vec![
                    line("p99", Colour::Vermilion, &latency(|of| of.p99_ms)),
                    line("median", Colour::Blue, &latency(|of| of.median_ms)),
                ],
            ),
            panel(
                "memory, VmRSS (MiB)",
                Scale::Linear,
                by_daemon(|sample, daemon| sample.rss_kib[daemon] as f64 / 1_024.0),
            ),
            panel(
                "descriptors",
                Scale::Linear,
                by_daemon(|sample, daemon| sample.descriptors[daemon] as f64),
            ),
            panel(
                "drops (packets/s)",
                Scale::Linear,
                vec![line("all daemons", Colour::Blue, &|sample| {
                    drops(sample) as f64
                })],
            ),
        ],
        marks: record.events.iter().map(mark).collect(),
    }
}

fn mark(event: &Event) -> Mark {
    Mark {
        kind: event.kind.to_string(),
        colour: match event.kind {
            Kind::Port => Colour::Green,
            Kind::Flap => Colour::Purple,
            Kind::Syncconf => Colour::Orange,
        },
        from: event.from_s,
        until: event.until_s,
    }
}

fn title(record: &Record) -> String {
    let spokes = record.header.daemons.len() - 1;
    let rate = match record.header.rate_mbps {
        0.0 => "as fast as TCP goes".to_owned(),
        mbps => format!("{mbps} Mbit/s each"),
    };
    format!("Convoy soak: hub with {spokes} spokes, TCP both ways, {rate}")
}
