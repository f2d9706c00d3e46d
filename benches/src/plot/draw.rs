//! From a figure to the elements of the drawing.

use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Colour, Figure, Line, Panel, PlotError, Scale, fonts::SANS as FONT, thin::thin};

const WIDTH: u32 = 1_200;
const HEAD: u32 = 84;
const FOOT: u32 = 46;
const PANEL: u32 = 196;
/// Of a panel that is the only one.
const ONLY_PANEL: u32 = 340;
/// Above each panel.
const LEGEND: u32 = 26;
/// Room for the numbers and the name of a vertical axis.
const Y_AXIS: u32 = 78;
/// About the width of a letter.
const LETTER: i32 = 7;
/// Up to so many points of a line are dots, too: that is where something was measured.
const FEW: usize = 32;
const DOT: i32 = 3;
/// How much of a linear axis lies above the highest value.
const HEADROOM: f64 = 1.12;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), PlotError>;

pub(super) fn figure(figure: &Figure, document: &mut String) -> Drawn {
    let span = horizontal_span(figure)?;
    let panel_height = if figure.panels.len() == 1 {
        ONLY_PANEL
    } else {
        PANEL
    };
    let height = HEAD + panel_height * figure.panels.len() as u32 + FOOT;
    let whole = SVGBackend::with_string(document, (WIDTH, height)).into_drawing_area();
    whole.fill(&WHITE)?;
    let (head, below) = whole.split_vertically(HEAD);
    draw_head(figure, &head)?;
    let mut rest = below;
    for (number, panel) in figure.panels.iter().enumerate() {
        let is_last = number + 1 == figure.panels.len();
        let (area, under) = rest.split_vertically(panel_height + if is_last { FOOT } else { 0 });
        let axis = if is_last { FOOT } else { 0 };
        let x = span.0..span.1;
        match figure.x_scale {
            Scale::Linear => draw_scaled(figure, panel, &area, axis, x)?,
            Scale::Logarithmic => draw_scaled(figure, panel, &area, axis, x.log_scale())?,
        }
        rest = under;
    }
    whole.present()?;
    Ok(())
}

fn horizontal_span(figure: &Figure) -> Result<(f64, f64), PlotError> {
    let lines = figure.panels.iter().flat_map(|panel| &panel.lines);
    let places = lines.flat_map(|line| line.points.iter().map(|point| point.0));
    let span = span_of(places).map(|(from, until)| match figure.x_scale {
        // Time begins at 0.
        Scale::Linear => (from.min(0.0), until),
        // A single place has room to both sides.
        Scale::Logarithmic if from == until => (from / 2.0, until * 2.0),
        Scale::Logarithmic => (from, until),
    });
    span.ok_or_else(|| PlotError("it has no panel with points".to_owned()))
}

fn vertical_span(panel: &Panel) -> Result<(f64, f64), PlotError> {
    let points = panel.lines.iter().flat_map(|line| &line.points);
    let values = points.map(|point| point.1);
    let shown = values.filter(|value| is_shown(panel.scale, *value));
    let (low, high) = span_of(shown)
        .ok_or_else(|| PlotError(format!("nothing to draw for {}", panel.y_label)))?;
    Ok(match panel.scale {
        Scale::Linear => (low.min(0.0), (high * HEADROOM).max(low + 1.0)),
        Scale::Logarithmic => {
            let power = |value: f64, round: fn(f64) -> f64| 10f64.powf(round(value.log10()));
            (power(low, f64::floor), power(high * HEADROOM, f64::ceil))
        }
    })
}

fn span_of(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |span, value| {
        let (low, high) = span.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

fn is_shown(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

fn draw_head(figure: &Figure, area: &Area<'_>) -> Drawn {
    let left = Y_AXIS as i32 + 8;
    let title = (FONT, 22).into_font().style(FontStyle::Bold).color(&BLACK);
    area.draw(&Text::new(figure.title.clone(), (left, 10), title))?;
    let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
    area.draw(&Text::new(
        figure.subtitle.clone(),
        (left, 38),
        small.clone(),
    ))?;
    let mut kinds: Vec<(&str, Colour)> = Vec::new();
    for mark in &figure.marks {
        let kind = (mark.kind.as_str(), mark.colour);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut x = left;
    for (kind, colour) in kinds {
        let bar = Rectangle::new([(x, 62), (x + 5, 77)], rgb(colour).filled());
        area.draw(&bar)?;
        area.draw(&Text::new(kind.to_owned(), (x + 10, 63), small.clone()))?;
        x += 36 + kind.chars().count() as i32 * LETTER;
    }
    Ok(())
}

/// A panel with its vertical axis as it is to be.
fn draw_scaled<X>(
    figure: &Figure,
    panel: &Panel,
    area: &Area<'_>,
    x_axis: u32,
    horizontal: X,
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let (low, high) = vertical_span(panel)?;
    let y = low..high;
    match panel.scale {
        Scale::Linear => draw_panel(figure, panel, area, x_axis, horizontal, y),
        Scale::Logarithmic => draw_panel(figure, panel, area, x_axis, horizontal, y.log_scale()),
    }
}

fn draw_panel<X, Y>(
    figure: &Figure,
    panel: &Panel,
    area: &Area<'_>,
    x_axis: u32,
    horizontal: X,
    vertical: Y,
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_top(LEGEND)
        .margin_left(8)
        .margin_right(24)
        .y_label_area_size(Y_AXIS)
        .x_label_area_size(x_axis)
        .build_cartesian_2d(horizontal, vertical)?;
    let axis_text = (FONT, 14).into_font();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .y_desc(&panel.y_label)
        .x_desc(if x_axis > 0 { &figure.x_label } else { "" })
        .axis_desc_style(axis_text.clone())
        .label_style((FONT, 13).into_font())
        .x_labels(13)
        .y_labels(5)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    draw_marks(figure, chart.plotting_area())?;
    for line in &panel.lines {
        let style = rgb(line.colour).stroke_width(1);
        for points in stretches(panel.scale, line) {
            chart.draw_series(LineSeries::new(points, style))?;
        }
        if line.points.len() <= FEW {
            let shown = line.points.iter().copied();
            let shown = shown.filter(|point| is_shown(panel.scale, point.1));
            chart.draw_series(shown.map(|point| Circle::new(point, DOT, style.filled())))?;
        }
    }
    draw_legend(panel, area)
}

/// Without the zeros that a fixed number of digits brings.
fn number(value: f64) -> String {
    let rounded = (value * 1e3).round() / 1e3;
    format!("{rounded}")
}

fn draw_marks<X, Y>(figure: &Figure, area: &DrawingArea<SVGBackend<'_>, Cartesian2d<X, Y>>) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let vertical = area.get_y_range();
    for mark in &figure.marks {
        let corners = [(mark.from, vertical.start), (mark.until, vertical.end)];
        let bar = Rectangle::new(corners, rgb(mark.colour).mix(0.25).filled());
        area.draw(&bar)?;
        let beginning = vec![(mark.from, vertical.start), (mark.from, vertical.end)];
        area.draw(&PathElement::new(beginning, rgb(mark.colour).mix(0.8)))?;
    }
    Ok(())
}

/// The parts of a line between its gaps.
fn stretches(scale: Scale, line: &Line) -> Vec<Vec<(f64, f64)>> {
    let points = thin(&line.points);
    let parts = points.split(|point| !is_shown(scale, point.1));
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(<[_]>::to_vec).collect()
}

fn draw_legend(panel: &Panel, area: &Area<'_>) -> Drawn {
    let (width, _) = area.dim_in_pixel();
    let named = panel.lines.iter().filter(|line| !line.name.is_empty());
    let mut right = width as i32 - 24;
    for line in named.rev() {
        let colour = rgb(line.colour);
        let style = TextStyle::from((FONT, 14).into_font())
            .color(&colour)
            .pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new(line.name.clone(), (right, 7), style))?;
        right -= line.name.chars().count() as i32 * LETTER + 20;
    }
    Ok(())
}

pub(super) fn rgb(colour: Colour) -> RGBColor {
    match colour {
        Colour::Blue => RGBColor(0x00, 0x72, 0xB2),
        Colour::Vermilion => RGBColor(0xD5, 0x5E, 0x00),
        Colour::Green => RGBColor(0x00, 0x9E, 0x73),
        Colour::Purple => RGBColor(0xCC, 0x79, 0xA7),
        Colour::Orange => RGBColor(0xE6, 0x9F, 0x00),
        Colour::Sky => RGBColor(0x56, 0xB4, 0xE9),
        Colour::Black => RGBColor(0x00, 0x00, 0x00),
        Colour::Grey => RGBColor(0xBB, 0xBB, 0xBB),
    }
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}
