//! A record as tables.

use convoy_lab::measure::Sample;

use super::{Axis, Quantity, Record, Series, USUAL};
use crate::markdown;

/// What must be known to read the tables.
pub const LEGEND: &str = "Medians, lowest to highest of the rounds; \"of\" tells how many rounds have the \
    figure where not all do. CPU time is that of both daemons. `*`: the generator set the limit in a round.";

impl Record {
    /// The figures along an axis: a row for each place, as Markdown.
    #[must_use]
    pub fn table(&self, axis: Axis) -> String {
        let quantities = axis.quantities();
        let names = quantities.iter().map(|quantity| quantity.name);
        let head = [axis.label()].into_iter().chain(names);
        let mut rows = vec![head.map(str::to_owned).collect()];
        for (place, series) in self.along(axis) {
            let cells = quantities
                .iter()
                .map(|quantity| self.cell(series, quantity));
            rows.push(
                [label(axis, place, series)]
                    .into_iter()
                    .chain(cells)
                    .collect(),
            );
        }
        markdown::table(&rows)
    }

    fn cell(&self, series: &Series, quantity: &Quantity) -> String {
        let Some(Sample {
            median,
            min,
            max,
            values,
        }) = (quantity.of)(series)
        else {
            return "–".to_owned();
        };
        let decimals = quantity.decimals;
        let rounds = if values.len() == self.rounds as usize {
            String::new()
        } else {
            format!("; {} of {}", values.len(), self.rounds)
        };
        format!("{median:.decimals$} ({min:.decimals$}–{max:.decimals$}{rounds})")
    }
}

fn label(axis: Axis, place: u32, series: &Series) -> String {
    let mark = if series.generator_limited > 0 {
        "*"
    } else {
        ""
    };
    let mtu = series.tunnel.mtu;
    if axis == Axis::PacketSize && mtu != USUAL.mtu {
        format!("{place}{mark} (MTU {mtu})")
    } else {
        format!("{place}{mark}")
    }
}
