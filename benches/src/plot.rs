//! Figures as SVG, by plotters: panels of lines over one horizontal axis, and groups of bars.
//!
//! The viewer chooses the font; a font of our own only measures the text.

use std::ops::Range;

use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Several panels, one below the other, over the same horizontal axis. Labels of axes have their unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Where and when it was measured.
    pub(crate) subtitle: String,
    pub(crate) x_label: String,
    pub(crate) x_scale: Scale,
    /// From top to bottom; panels without points are left out.
    pub(crate) panels: Vec<Panel>,
    /// Drawn through all panels.
    pub(crate) marks: Vec<Mark>,
}

/// One vertical axis and its lines, in the order in which they are drawn.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    y_label: String,
    scale: Scale,
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    #[default]
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Logarithmic,
}

/// One quantity along the horizontal axis; a line without a name is not in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// A span of time with an event; those of one kind appear once in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) kind: &'static str,
    pub(crate) colour: RGBColor,
    pub(crate) span: Range<f64>,
}

/// Groups of bars that begin at zero.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) y_label: String,
    pub(crate) groups: Vec<String>,
    /// A name, a colour, and a value for each group.
    pub(crate) series: Vec<(String, RGBColor, Vec<Option<f64>>)>,
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
const LETTER: i32 = 8;
/// Lines of at most this many points are drawn with dots.
const FEW: usize = 32;
/// How much of an axis lies above the highest value.
const HEADROOM: f64 = 1.12;
/// The share of a group's width that its bars take.
const FILLED: f64 = 0.8;
/// Most points of a line: more than a screen has columns.
const MOST_POINTS: usize = 2_000;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws `figure` as an SVG document.
///
/// # Errors
/// When no panel has points.
pub(crate) fn svg(figure: &Figure) -> anyhow::Result<String> {
    let panels = figure.panels.iter();
    let panels: Vec<&Panel> = panels.filter(|it| it.places().count() > 0).collect();
    anyhow::ensure!(!panels.is_empty(), "nothing to draw for {}", figure.title);
    let mut kinds: Vec<_> = figure.marks.iter().map(|it| (it.kind, it.colour)).collect();
    kinds.sort_unstable_by_key(|(kind, _)| *kind);
    kinds.dedup();
    let titles = [&figure.title[..], &figure.subtitle];
    drawn(titles, &kinds, panels.len(), |number, area, foot| {
        panels[number].draw(figure, area, foot)
    })
}

/// Draws `bars` as an SVG document.
///
/// # Errors
/// When there is no bar to draw.
pub(crate) fn bars_svg(bars: &Bars) -> anyhow::Result<String> {
    let series = bars.series.iter();
    let names: Vec<_> = series
        .map(|(name, colour, _)| (&name[..], *colour))
        .collect();
    let values = bars.series.iter().flat_map(|(_, _, values)| values);
    let values: Vec<f64> = values.flatten().copied().collect();
    anyhow::ensure!(!values.is_empty(), "nothing to draw for {}", bars.title);
    drawn([&bars.title, &bars.subtitle], &names, 1, |_, area, foot| {
        let x = Axis {
            label: "",
            ends: -0.5..bars.groups.len() as f64 - 0.5,
            most_ticks: bars.groups.len(),
            shown: &|place| bars.groups[*place as usize].clone(),
        };
        let y = Scale::Linear.axis(&bars.y_label, values.iter().copied(), HEADROOM, 6);
        let chart = chart(area, foot, x, y)?;
        let width = FILLED / bars.series.len() as f64;
        for (place, (_, colour, values)) in bars.series.iter().enumerate() {
            for (group, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let left = group as f64 - FILLED / 2.0 + place as f64 * width;
                let right = left + width * 0.92;
                let bar = Rectangle::new([(left, 0.0), (right, value)], colour.filled());
                chart.plotting_area().draw(&bar)?;
                let style = TextStyle::from((FONT, 14).into_font());
                let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                let above = ((left + right) / 2.0, value);
                let text = Text::new(format!("{value:.2}"), above, style);
                chart.plotting_area().draw(&text)?;
            }
        }
        Ok(())
    })
}

/// A document in one line: title, subtitle, legend, and panels, which `draw` fills by their number, from the top on.
/// The last one has room for the horizontal axis.
fn drawn(
    [title, subtitle]: [&str; 2],
    legend: &[(&str, RGBColor)],
    panels: usize,
    draw: impl Fn(usize, &Area<'_>, u32) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    for (style, font) in [
        (FontStyle::Normal, dejavu::sans::regular()),
        (FontStyle::Bold, dejavu::sans::bold()),
    ] {
        register_font(FONT, style, font).map_err(|_| anyhow::anyhow!("the font is malformed"))?;
    }
    let height = if panels == 1 { ONLY_PANEL } else { PANEL };
    let size = (WIDTH, HEAD + height * panels as u32 + FOOT);
    let mut document = String::new();
    let whole = SVGBackend::with_string(&mut document, size).into_drawing_area();
    whole.fill(&WHITE)?;
    let (head, mut rest) = whole.split_vertically(HEAD);
    let mut x = Y_AXIS as i32 + 8;
    let large = (FONT, 22).into_font().style(FontStyle::Bold);
    head.draw(&Text::new(title, (x, 10), large))?;
    let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
    head.draw(&Text::new(subtitle, (x, 38), small))?;
    for (name, colour) in legend {
        head.draw(&Rectangle::new([(x, 63), (x + 14, 77)], colour.filled()))?;
        head.draw(&Text::new(*name, (x + 20, 63), (FONT, 14).into_font()))?;
        x += 46 + name.chars().count() as i32 * LETTER;
    }
    for number in 0..panels {
        let foot = if number + 1 == panels { FOOT } else { 0 };
        let (area, under) = rest.split_vertically(height + foot);
        draw(number, &area, foot)?;
        rest = under;
    }
    whole.present()?;
    drop((whole, head, rest));
    Ok(document.lines().map(str::trim).collect::<String>() + "\n")
}

/// One axis: its name, its ends, and the text at a place on it.
struct Axis<'a> {
    label: &'a str,
    ends: Range<f64>,
    most_ticks: usize,
    shown: &'a dyn Fn(&f64) -> String,
}

fn chart<'a>(area: &Area<'a>, foot: u32, x: Axis<'_>, y: Axis<'_>) -> anyhow::Result<Chart<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_left(8)
        .margin_right(24)
        .y_label_area_size(Y_AXIS)
        .x_label_area_size(foot)
        .build_cartesian_2d(x.ends, y.ends)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .x_desc(x.label)
        .y_desc(y.label)
        .axis_desc_style((FONT, 14).into_font())
        .label_style((FONT, 13).into_font())
        .x_labels(x.most_ticks)
        .y_labels(y.most_ticks)
        .x_label_formatter(x.shown)
        .y_label_formatter(y.shown)
        .draw()?;
    Ok(chart)
}

impl Line {
    /// Points from left to right; a value that is not finite leaves a gap.
    pub(crate) fn new(
        name: impl Into<String>,
        colour: RGBColor,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name: name.into(),
            colour,
            points: points.into_iter().collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

impl Panel {
    pub(crate) fn linear(y_label: impl Into<String>, lines: Vec<Line>) -> Self {
        Self {
            y_label: y_label.into(),
            scale: Scale::Linear,
            lines,
        }
    }

    pub(crate) fn logarithmic(y_label: impl Into<String>, lines: Vec<Line>) -> Self {
        Self {
            scale: Scale::Logarithmic,
            ..Self::linear(y_label, lines)
        }
    }

    /// The values that have a place on the axis, as places.
    fn places(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let places = points.map(|point| self.scale.place(point.1));
        places.filter(|place| place.is_finite())
    }

    fn draw(&self, figure: &Figure, area: &Area<'_>, foot: u32) -> anyhow::Result<()> {
        let (across, up) = (figure.x_scale, self.scale);
        let lines = figure.panels.iter().flat_map(|panel| &panel.lines);
        let all = lines.flat_map(|line| line.points.iter().map(|point| across.place(point.0)));
        let x_label = if foot > 0 { &figure.x_label[..] } else { "" };
        let x = across.axis(x_label, all, 1.0, 13);
        let y = up.axis(&self.y_label, self.places(), HEADROOM, 5);
        let Range { start, end } = y.ends;
        let mut chart = chart(area, foot, x, y)?;
        for mark in &figure.marks {
            let corners = [(mark.span.start, start), (mark.span.end, end)];
            let stripe = Rectangle::new(corners, mark.colour.mix(0.4).filled());
            chart.plotting_area().draw(&stripe)?;
        }
        for Line { points, colour, .. } in &self.lines {
            let points = thinned(points).into_iter();
            let points = points.map(|(x, y)| (across.place(x), up.place(y)));
            let points: Vec<_> = points.collect();
            for part in points.split(|point| !point.1.is_finite()) {
                chart.draw_series(LineSeries::new(part.iter().copied(), colour))?;
                if points.len() <= FEW {
                    let dot = |point: &_| Circle::new(*point, 3, colour.filled());
                    chart.draw_series(part.iter().map(dot))?;
                }
            }
        }
        let mut right = WIDTH as i32 - 24;
        for line in self.lines.iter().rev().filter(|line| !line.name.is_empty()) {
            let style = TextStyle::from((FONT, 14).into_font()).color(&line.colour);
            let style = style.pos(Pos::new(HPos::Right, VPos::Top));
            area.draw(&Text::new(&line.name[..], (right, 7), style))?;
            right -= line.name.chars().count() as i32 * LETTER + 20;
        }
        Ok(())
    }
}

/// The highest point of each of many equal stretches: every peak stays.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretches = points.chunks(points.len().div_ceil(MOST_POINTS).max(1));
    let highest = stretches.filter_map(|stretch| {
        let points = stretch.iter().copied();
        points.max_by(|a, b| a.1.total_cmp(&b.1))
    });
    highest.collect()
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.log10(),
        }
    }

    /// An axis that holds `places`, and `room` times the highest value.
    fn axis(
        self,
        label: &str,
        places: impl Iterator<Item = f64>,
        room: f64,
        most_ticks: usize,
    ) -> Axis<'_> {
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
            (it.min(low), it.max(high))
        });
        let (start, end) = match self {
            Self::Linear => (low.min(0.0), (high * room).max(low.min(0.0) + 1.0)),
            Self::Logarithmic => (
                low.floor(),
                (high + room.log10()).ceil().max(low.floor() + 1.0),
            ),
        };
        Axis {
            label,
            ends: start..end,
            most_ticks: match self {
                Self::Linear => most_ticks,
                // One at each power of ten.
                Self::Logarithmic => (end - start) as usize + 1,
            },
            shown: match self {
                Self::Linear => &|place| number(*place),
                Self::Logarithmic => &|place| number(10_f64.powf(*place)),
            },
        }
    }
}

/// Without the zeros that a fixed number of digits brings.
fn number(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_a_day_keeps_its_peaks_leaves_gaps_and_names_what_is_in_it() {
        let value = |second| match second {
            40_000 => 99.0,
            50_000.. => f64::NAN,
            _ => 1.0,
        };
        let points: Vec<_> = (0..86_400).map(|s| (f64::from(s), value(s))).collect();
        let few = thinned(&points);
        assert!(few.len() <= MOST_POINTS && few.contains(&(40_000.0, 99.0)));
        let figure = Figure {
            title: "A title".to_owned(),
            x_label: "time (s)".to_owned(),
            panels: vec![Panel::linear("kpps", vec![Line::new("sent", BLUE, points)])],
            ..Figure::default()
        };
        let svg = svg(&figure).unwrap();
        for text in ["A title", "time (s)", "kpps", "sent", "100"] {
            assert!(svg.contains(&format!(">{text}<")), "{text}: {svg}");
        }
        assert!(svg.lines().count() == 1 && !svg.contains("NaN"));
        assert!(super::svg(&Figure::default()).is_err());
    }
}
