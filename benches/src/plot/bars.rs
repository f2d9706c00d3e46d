//! Groups of bars over one axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FONT, Y_AXIS, canvas, compact, draw_titles};

/// A chart whose bars begin at zero.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Where it was measured, and when.
    pub(crate) subtitle: String,
    /// The axis with its unit.
    pub(crate) y_label: String,
    /// From left to right.
    pub(crate) groups: Vec<String>,
    /// From left to right in each group: a name, a colour, and a value for each group.
    pub(crate) series: Vec<(String, RGBColor, Vec<Option<f64>>)>,
}

const HEIGHT: u32 = 460;
const HEAD: u32 = 92;
/// The share of a group's width that its bars take.
const FILLED: f64 = 0.8;

/// Draws `bars` as an SVG document.
///
/// # Errors
/// When there is no bar to draw.
pub(crate) fn bars_svg(bars: &Bars) -> anyhow::Result<String> {
    let values = bars.series.iter().flat_map(|(_, _, values)| values);
    let highest = values.flatten().copied().fold(0.0, f64::max);
    anyhow::ensure!(highest > 0.0, "nothing to draw for {}", bars.title);
    let mut document = String::new();
    let whole = canvas(&mut document, HEIGHT)?;
    let (head, below) = whole.split_vertically(HEAD);
    draw_titles(&head, &bars.title, &bars.subtitle)?;
    let mut x = Y_AXIS as i32 + 8;
    for (name, colour, _) in &bars.series {
        head.draw(&Rectangle::new([(x, 64), (x + 14, 78)], colour.filled()))?;
        head.draw(&Text::new(
            name.as_str(),
            (x + 20, 63),
            (FONT, 15).into_font(),
        ))?;
        x += 46 + name.chars().count() as i32 * 8;
    }
    let mut chart = ChartBuilder::on(&below)
        .margin_left(8)
        .margin_right(24)
        .margin_bottom(44)
        .y_label_area_size(Y_AXIS)
        .build_cartesian_2d(0.0..bars.groups.len() as f64, 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .y_desc(&bars.y_label)
        .label_style((FONT, 14).into_font())
        .y_labels(6)
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    let area = chart.plotting_area();
    let width = FILLED / bars.series.len() as f64;
    let centred = |size, vertical| {
        TextStyle::from((FONT, size).into_font()).pos(Pos::new(HPos::Center, vertical))
    };
    for (place, (_, colour, values)) in bars.series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let left = group as f64 + (1.0 - FILLED) / 2.0 + place as f64 * width;
            let right = left + width * 0.92;
            area.draw(&Rectangle::new(
                [(left, 0.0), (right, value)],
                colour.filled(),
            ))?;
            let above = ((left + right) / 2.0, value);
            area.draw(&Text::new(
                format!("{value:.2}"),
                above,
                centred(14, VPos::Bottom),
            ))?;
        }
    }
    for (group, name) in bars.groups.iter().enumerate() {
        let (x, y) = area.map_coordinate(&(group as f64 + 0.5, 0.0));
        whole.draw(&Text::new(
            name.as_str(),
            (x, y + 10),
            centred(16, VPos::Top),
        ))?;
    }
    whole.present()?;
    drop((chart, head, below, whole));
    Ok(compact(&document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{BLUE, GREY};

    #[test]
    fn every_group_series_and_value_is_named() {
        let mut bars = Bars {
            title: "A title".to_owned(),
            subtitle: "2 × somewhere".to_owned(),
            y_label: "Gbit/s".to_owned(),
            groups: ["up", "down"].map(str::to_owned).into(),
            series: vec![
                ("one".to_owned(), BLUE, vec![Some(6.03), Some(5.56)]),
                ("other".to_owned(), GREY, vec![Some(3.5), None]),
            ],
        };
        let svg = bars_svg(&bars).unwrap();
        for text in [
            "A title", "Gbit/s", "up", "down", "one", "other", "6.03", "3.50",
        ] {
            assert!(svg.contains(&format!(">{text}<")), "{text} is missing");
        }
        bars.series.clear();
        assert!(bars_svg(&bars).is_err());
    }
}
