//! Figures as SVG, by plotters: panels of lines over one horizontal axis, and groups of bars.
//!
//! The font of the text is left to the program that shows the picture; a font that comes along measures it.

mod bars;

use plotters::coord::{Shift, ranged1d::AsRangedCoord, ranged1d::ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use bars::{Bars, bars_svg};

/// Several panels, one below the other, over the same horizontal axis.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Where it was measured, and when.
    pub(crate) subtitle: String,
    /// The horizontal axis with its unit.
    pub(crate) x_label: String,
    pub(crate) x_scale: Scale,
    /// From top to bottom; panels without points are left out.
    pub(crate) panels: Vec<Panel>,
    /// Events, drawn through all panels.
    pub(crate) marks: Vec<Mark>,
}

/// One vertical axis and its lines.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// The vertical axis with its unit.
    pub(crate) y_label: String,
    pub(crate) scale: Scale,
    /// In the order in which they are drawn.
    pub(crate) lines: Vec<Line>,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Logarithmic,
}

/// One quantity along the horizontal axis.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// For the legend; a line without a name is not in it.
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    /// From left to right; a value that is not finite leaves a gap.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A span of time with an event.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Marks of one kind appear once in the legend.
    pub(crate) kind: &'static str,
    pub(crate) colour: RGBColor,
    pub(crate) from: f64,
    pub(crate) until: f64,
}

// Colours that everyone can tell apart (Okabe and Ito, 2008).
pub(crate) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xB2);
pub(crate) const VERMILION: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9E, 0x73);
pub(crate) const PURPLE: RGBColor = RGBColor(0xCC, 0x79, 0xA7);
pub(crate) const ORANGE: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
pub(crate) const SKY: RGBColor = RGBColor(0x56, 0xB4, 0xE9);
/// For lines of less interest.
pub(crate) const GREY: RGBColor = RGBColor(0xBB, 0xBB, 0xBB);

const FONT: &str = "sans-serif";
const WIDTH: u32 = 1_200;
const HEAD: u32 = 84;
const FOOT: u32 = 46;
const PANEL: u32 = 196;
/// The height of a panel that is the only one.
const ONLY_PANEL: u32 = 340;
/// Room for the numbers and the name of a vertical axis.
const Y_AXIS: u32 = 78;
/// About the width of a letter.
const LETTER: i32 = 7;
/// Lines of at most this many points are drawn with dots.
const FEW: usize = 32;
/// How much of a linear axis lies above the highest value.
const HEADROOM: f64 = 1.12;
/// Most points of a line: more than a screen has columns.
const MOST_POINTS: usize = 2_000;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws `figure` as an SVG document, one line a drawing.
///
/// # Errors
/// When no panel has points.
pub(crate) fn svg(figure: &Figure) -> anyhow::Result<String> {
    let shown = |panel: &&Panel| points(panel).any(|(_, y)| is_shown(panel.scale, y));
    let panels: Vec<&Panel> = figure.panels.iter().filter(shown).collect();
    anyhow::ensure!(!panels.is_empty(), "nothing to draw for {}", figure.title);
    let panel_height = if panels.len() == 1 { ONLY_PANEL } else { PANEL };
    let height = HEAD + panel_height * panels.len() as u32 + FOOT;
    let mut document = String::new();
    let whole = canvas(&mut document, height)?;
    let (head, mut rest) = whole.split_vertically(HEAD);
    draw_head(figure, &head)?;
    for (number, panel) in panels.iter().enumerate() {
        let foot = if number + 1 == panels.len() { FOOT } else { 0 };
        let (area, under) = rest.split_vertically(panel_height + foot);
        let (left, right) = horizontal_span(figure, &panels);
        match figure.x_scale {
            Scale::Linear => draw_scaled(figure, panel, &area, foot, left..right)?,
            Scale::Logarithmic => {
                draw_scaled(figure, panel, &area, foot, (left..right).log_scale())?
            }
        }
        rest = under;
    }
    whole.present()?;
    drop((head, rest, whole));
    Ok(compact(&document))
}

fn canvas(document: &mut String, height: u32) -> anyhow::Result<Area<'_>> {
    use plotters::style::register_font;
    for (style, font) in [
        (FontStyle::Normal, dejavu::sans::regular()),
        (FontStyle::Bold, dejavu::sans::bold()),
    ] {
        register_font(FONT, style, font).map_err(|_| anyhow::anyhow!("the font is malformed"))?;
    }
    let whole = SVGBackend::with_string(document, (WIDTH, height)).into_drawing_area();
    whole.fill(&WHITE)?;
    Ok(whole)
}

/// Without the line breaks between and inside the elements.
fn compact(document: &str) -> String {
    let lines: Vec<_> = document.lines().map(str::trim).collect();
    lines.concat() + "\n"
}

fn points(panel: &Panel) -> impl Iterator<Item = (f64, f64)> {
    panel
        .lines
        .iter()
        .flat_map(|line| line.points.iter().copied())
}

fn is_shown(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

fn horizontal_span(figure: &Figure, panels: &[&Panel]) -> (f64, f64) {
    let (from, until) = span(
        panels
            .iter()
            .flat_map(|panel| points(panel))
            .map(|(x, _)| x),
    );
    match figure.x_scale {
        Scale::Linear => (from.min(0.0), until),
        // A single place has room on both sides.
        Scale::Logarithmic if from == until => (from / 2.0, until * 2.0),
        Scale::Logarithmic => (from, until),
    }
}

fn vertical_span(panel: &Panel) -> (f64, f64) {
    let shown = points(panel)
        .map(|(_, y)| y)
        .filter(|y| is_shown(panel.scale, *y));
    let (low, high) = span(shown);
    let power = |value: f64, round: fn(f64) -> f64| 10f64.powf(round(value.log10()));
    match panel.scale {
        Scale::Linear => (low.min(0.0), (high * HEADROOM).max(low + 1.0)),
        Scale::Logarithmic => (power(low, f64::floor), power(high * HEADROOM, f64::ceil)),
    }
}

fn draw_head(figure: &Figure, area: &Area<'_>) -> anyhow::Result<()> {
    draw_titles(area, &figure.title, &figure.subtitle)?;
    let mut kinds: Vec<&Mark> = Vec::new();
    for mark in &figure.marks {
        if kinds.iter().all(|known| known.kind != mark.kind) {
            kinds.push(mark);
        }
    }
    let mut x = Y_AXIS as i32 + 8;
    for Mark { kind, colour, .. } in kinds {
        area.draw(&Rectangle::new([(x, 62), (x + 5, 77)], colour.filled()))?;
        area.draw(&Text::new(*kind, (x + 10, 63), (FONT, 14).into_font()))?;
        x += 36 + kind.chars().count() as i32 * LETTER;
    }
    Ok(())
}

fn draw_titles(area: &Area<'_>, title: &str, subtitle: &str) -> anyhow::Result<()> {
    let left = Y_AXIS as i32 + 8;
    let large = (FONT, 22).into_font().style(FontStyle::Bold);
    area.draw(&Text::new(title, (left, 10), large))?;
    let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
    area.draw(&Text::new(subtitle, (left, 38), small))?;
    Ok(())
}

fn draw_scaled<X>(
    figure: &Figure,
    panel: &Panel,
    area: &Area<'_>,
    foot: u32,
    x: X,
) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let (low, high) = vertical_span(panel);
    match panel.scale {
        Scale::Linear => draw_panel(figure, panel, area, foot, x, low..high),
        Scale::Logarithmic => draw_panel(figure, panel, area, foot, x, (low..high).log_scale()),
    }
}

fn draw_panel<X, Y>(
    figure: &Figure,
    panel: &Panel,
    area: &Area<'_>,
    foot: u32,
    x: X,
    y: Y,
) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_left(8)
        .margin_right(24)
        .y_label_area_size(Y_AXIS)
        .x_label_area_size(foot)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .y_desc(&panel.y_label)
        .x_desc(if foot > 0 { &figure.x_label } else { "" })
        .axis_desc_style((FONT, 14).into_font())
        .label_style((FONT, 13).into_font())
        .x_labels(13)
        .y_labels(5)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    let vertical = chart.plotting_area().get_y_range();
    for Mark {
        from,
        until,
        colour,
        ..
    } in &figure.marks
    {
        let corners = [(*from, vertical.start), (*until, vertical.end)];
        let plotting = chart.plotting_area();
        plotting.draw(&Rectangle::new(corners, colour.mix(0.4).filled()))?;
    }
    for line in &panel.lines {
        let shown = |point: &(f64, f64)| is_shown(panel.scale, point.1);
        for part in thinned(&line.points).split(|point| !shown(point)) {
            chart.draw_series(LineSeries::new(part.iter().copied(), line.colour))?;
        }
        if line.points.len() <= FEW {
            let dots = line.points.iter().copied().filter(shown);
            chart.draw_series(dots.map(|point| Circle::new(point, 3, line.colour.filled())))?;
        }
    }
    draw_legend(panel, area)
}

fn draw_legend(panel: &Panel, area: &Area<'_>) -> anyhow::Result<()> {
    let mut right = WIDTH as i32 - 24;
    for line in panel
        .lines
        .iter()
        .filter(|line| !line.name.is_empty())
        .rev()
    {
        let style = TextStyle::from((FONT, 14).into_font()).color(&line.colour);
        let style = style.pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new(line.name.as_str(), (right, 7), style))?;
        right -= line.name.chars().count() as i32 * LETTER + 20;
    }
    Ok(())
}

/// Without the zeros that a fixed number of digits brings.
fn number(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

/// The points, or the lowest and the highest of each of many equal stretches: every peak stays.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let extremes = |stretch: &[(f64, f64)]| {
        let lowest = stretch.iter().min_by(by_value);
        let mut both: Vec<_> = lowest
            .into_iter()
            .chain(stretch.iter().max_by(by_value))
            .copied()
            .collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both
    };
    points
        .chunks(points.len().div_ceil(MOST_POINTS / 2))
        .flat_map(extremes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let panel = |y_label: &str, scale, values: [f64; 4]| Panel {
            y_label: y_label.to_owned(),
            scale,
            lines: vec![Line {
                name: format!("of {y_label}"),
                colour: BLUE,
                points: (1..).map(f64::from).zip(values).collect(),
            }],
        };
        Figure {
            title: "A title".to_owned(),
            subtitle: "somewhere".to_owned(),
            x_label: "time (s)".to_owned(),
            x_scale: Scale::Linear,
            panels: vec![
                panel("rate", Scale::Linear, [1.0, 2.0, f64::NAN, 3.0]),
                panel("latency", Scale::Logarithmic, [0.1, 0.0, 20.0, 5.0]),
            ],
            marks: vec![Mark {
                kind: "flap",
                colour: PURPLE,
                from: 1.0,
                until: 1.5,
            }],
        }
    }

    #[test]
    fn a_figure_names_its_axes_lines_and_marks_in_one_line() {
        let svg = svg(&figure()).unwrap();
        for text in [
            "A title",
            "somewhere",
            "time (s)",
            "of rate",
            "of latency",
            "flap",
        ] {
            assert!(svg.contains(&format!(">{text}<")), "{text} is missing");
        }
        assert_eq!(svg.lines().count(), 1);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_missing_value_leaves_a_gap_and_few_points_are_dots() {
        let count = |figure: &Figure, what| svg(figure).unwrap().matches(what).count();
        let mut whole = figure();
        whole.panels[0].lines[0].points[2].1 = 2.0;
        assert_eq!(
            count(&figure(), "<polyline"),
            count(&whole, "<polyline") + 1
        );
        assert_eq!(count(&figure(), "<circle"), 6);
    }

    #[test]
    fn a_day_is_thinned_and_keeps_its_peaks() {
        let value = |second| if second == 40_000 { 99.0 } else { 1.0 };
        let points: Vec<_> = (0..86_400).map(|s| (f64::from(s), value(s))).collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MOST_POINTS && thinned.contains(&(40_000.0, 99.0)));
    }

    #[test]
    fn nothing_cannot_be_drawn() {
        let mut empty = figure();
        empty
            .panels
            .iter_mut()
            .for_each(|panel| panel.lines.clear());
        assert!(svg(&empty).is_err());
    }
}
