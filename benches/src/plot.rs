//! Figures as SVG, by plotters: panels of lines over one horizontal axis, and groups of bars.
//!
//! The viewer chooses the font; a font of our own only measures the text.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Several panels, one below the other, over the same horizontal axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Where and when it was measured.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    #[default]
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

/// A chart whose bars begin at zero.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) y_label: String,
    /// From left to right.
    pub(crate) groups: Vec<String>,
    /// From left to right in each group: a name, a colour, and a value for each group.
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
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis<'b>, Axis<'b>>>;

/// One axis of a chart: its name, its ends, and where a number stands.
struct Axis<'a> {
    label: &'a str,
    ends: (f64, f64),
    ticks: Vec<f64>,
    shown: &'a dyn Fn(f64) -> String,
}

impl Ranged for Axis<'_> {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// Draws `figure` as an SVG document.
///
/// # Errors
/// When no panel has points.
pub(crate) fn svg(figure: &Figure) -> anyhow::Result<String> {
    let panels = figure.panels.iter();
    let panels: Vec<&Panel> = panels.filter(|panel| panel.heights().count() > 0).collect();
    anyhow::ensure!(!panels.is_empty(), "nothing to draw for {}", figure.title);
    let height = if panels.len() == 1 { ONLY_PANEL } else { PANEL };
    let lines = panels.iter().flat_map(|panel| &panel.lines);
    let places = lines.flat_map(|line| line.points.iter().map(|point| point.0));
    let x = figure.x_scale.ends(places);
    drawn(HEAD + height * panels.len() as u32 + FOOT, |whole| {
        let (head, mut rest) = whole.split_vertically(HEAD);
        draw_head(&head, &figure.title, &figure.subtitle, &figure.kinds())?;
        for (number, panel) in panels.iter().enumerate() {
            let foot = if number + 1 == panels.len() { FOOT } else { 0 };
            let (area, under) = rest.split_vertically(height + foot);
            panel.draw(figure, &area, foot, x)?;
            rest = under;
        }
        Ok(())
    })
}

/// Draws `bars` as an SVG document.
///
/// # Errors
/// When there is no bar to draw.
pub(crate) fn bars_svg(bars: &Bars) -> anyhow::Result<String> {
    let values = bars.series.iter().flat_map(|(_, _, values)| values);
    let highest = values.flatten().copied().fold(0.0, f64::max);
    anyhow::ensure!(highest > 0.0, "nothing to draw for {}", bars.title);
    let names = bars
        .series
        .iter()
        .map(|(name, colour, _)| (&name[..], *colour));
    let groups = bars.groups.len();
    let y = (0.0, highest * HEADROOM);
    drawn(HEAD + ONLY_PANEL + FOOT, |whole| {
        let (head, below) = whole.split_vertically(HEAD);
        draw_head(
            &head,
            &bars.title,
            &bars.subtitle,
            &names.collect::<Vec<_>>(),
        )?;
        let x = Axis {
            label: "",
            ends: (0.0, groups as f64),
            ticks: (0..groups).map(|group| group as f64 + 0.5).collect(),
            shown: &|place| bars.groups[place as usize].clone(),
        };
        let y = Axis {
            label: &bars.y_label,
            ends: y,
            ticks: Scale::Linear.ticks(y, 6),
            shown: &number,
        };
        let chart = chart(&below, FOOT, x, y)?;
        let width = FILLED / bars.series.len() as f64;
        for (place, (_, colour, values)) in bars.series.iter().enumerate() {
            for (group, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let left = group as f64 + (1.0 - FILLED) / 2.0 + place as f64 * width;
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

/// A document of this height in one line; `draw` fills it.
fn drawn(
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    use plotters::style::register_font;
    for (style, font) in [
        (FontStyle::Normal, dejavu::sans::regular()),
        (FontStyle::Bold, dejavu::sans::bold()),
    ] {
        register_font(FONT, style, font).map_err(|_| anyhow::anyhow!("the font is malformed"))?;
    }
    let mut document = String::new();
    let whole = SVGBackend::with_string(&mut document, (WIDTH, height)).into_drawing_area();
    whole.fill(&WHITE)?;
    draw(&whole)?;
    whole.present()?;
    drop(whole);
    Ok(document.lines().map(str::trim).collect::<String>() + "\n")
}

/// The titles, and below them the legend.
fn draw_head(
    area: &Area<'_>,
    title: &str,
    subtitle: &str,
    legend: &[(&str, RGBColor)],
) -> anyhow::Result<()> {
    let mut x = Y_AXIS as i32 + 8;
    let large = (FONT, 22).into_font().style(FontStyle::Bold);
    area.draw(&Text::new(title, (x, 10), large))?;
    let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
    area.draw(&Text::new(subtitle, (x, 38), small))?;
    for (name, colour) in legend {
        area.draw(&Rectangle::new([(x, 63), (x + 14, 77)], colour.filled()))?;
        area.draw(&Text::new(*name, (x + 20, 63), (FONT, 14).into_font()))?;
        x += 46 + name.chars().count() as i32 * LETTER;
    }
    Ok(())
}

fn chart<'a, 'b>(
    area: &Area<'a>,
    foot: u32,
    x: Axis<'b>,
    y: Axis<'b>,
) -> anyhow::Result<Chart<'a, 'b>> {
    let (x_shown, y_shown) = (x.shown, y.shown);
    let (x_label, y_label) = (x.label, y.label);
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
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .x_desc(x_label)
        .y_desc(y_label)
        .axis_desc_style((FONT, 14).into_font())
        .label_style((FONT, 13).into_font())
        .x_label_formatter(&|place| x_shown(*place))
        .y_label_formatter(&|place| y_shown(*place))
        .draw()?;
    Ok(chart)
}

/// Without the zeros that a fixed number of digits brings.
fn number(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

impl Figure {
    fn kinds(&self) -> Vec<(&str, RGBColor)> {
        let mut kinds = Vec::new();
        for mark in &self.marks {
            if !kinds.contains(&(mark.kind, mark.colour)) {
                kinds.push((mark.kind, mark.colour));
            }
        }
        kinds
    }
}

impl Panel {
    /// The finite values, placed on the axis.
    fn heights(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let placed = points.map(|point| self.scale.place(point.1));
        placed.filter(|place| place.is_finite())
    }

    fn draw(
        &self,
        figure: &Figure,
        area: &Area<'_>,
        foot: u32,
        x: (f64, f64),
    ) -> anyhow::Result<()> {
        let (across, up) = (figure.x_scale, self.scale);
        let y = up.ends_above(self.heights());
        let x = Axis {
            label: if foot > 0 { &figure.x_label } else { "" },
            ends: x,
            ticks: across.ticks(x, 13),
            shown: &|place| number(across.value(place)),
        };
        let y_axis = Axis {
            label: &self.y_label,
            ends: y,
            ticks: up.ticks(y, 5),
            shown: &|place| number(up.value(place)),
        };
        let mut chart = chart(area, foot, x, y_axis)?;
        for mark in &figure.marks {
            let corners = [(mark.from, y.0), (mark.until, y.1)];
            let stripe = Rectangle::new(corners, mark.colour.mix(0.4).filled());
            chart.plotting_area().draw(&stripe)?;
        }
        let mut right = WIDTH as i32 - 24;
        for line in &self.lines {
            let points = thinned(&line.points).into_iter();
            let points = points.map(|(x, y)| (across.place(x), up.place(y)));
            let points: Vec<_> = points.collect();
            for part in points.split(|point| !point.1.is_finite()) {
                chart.draw_series(LineSeries::new(part.iter().copied(), line.colour))?;
                if points.len() <= FEW {
                    let dot = |point: &_| Circle::new(*point, 3, line.colour.filled());
                    chart.draw_series(part.iter().map(dot))?;
                }
            }
        }
        for line in self.lines.iter().rev().filter(|line| !line.name.is_empty()) {
            let style = TextStyle::from((FONT, 14).into_font()).color(&line.colour);
            let style = style.pos(Pos::new(HPos::Right, VPos::Top));
            area.draw(&Text::new(&line.name[..], (right, 7), style))?;
            right -= line.name.chars().count() as i32 * LETTER + 20;
        }
        Ok(())
    }
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.log10(),
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Logarithmic => 10_f64.powf(place),
        }
    }

    /// The ends of a horizontal axis that holds `values`, as places.
    fn ends(self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        match (self, span(values.map(|value| self.place(value)))) {
            (Self::Linear, (low, high)) => (low.min(0.0), high),
            // A single place has room on both sides.
            (Self::Logarithmic, (low, high)) if low == high => (low - 0.3, high + 0.3),
            (Self::Logarithmic, ends) => ends,
        }
    }

    /// The ends of a vertical axis, with room above the highest of `places`.
    fn ends_above(self, places: impl Iterator<Item = f64>) -> (f64, f64) {
        let (low, high) = span(places);
        match self {
            Self::Linear => (low.min(0.0), (high * HEADROOM).max(low + 1.0)),
            Self::Logarithmic => (low.floor(), (high + HEADROOM.log10()).ceil()),
        }
    }

    fn ticks(self, (low, high): (f64, f64), most: usize) -> Vec<f64> {
        if self == Self::Linear {
            return RangedCoordf64::from(low..high).key_points(most);
        }
        let digits: &[f64] = if high - low < 3.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let decades = low.floor() as i32..=high.ceil() as i32;
        let ticks = decades.flat_map(|decade| {
            let digits = digits.iter();
            digits.map(move |digit| f64::from(decade) + digit.log10())
        });
        ticks.filter(|tick| (low..=high).contains(tick)).collect()
    }
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// The points, or the lowest and the highest of each of many equal stretches: every peak stays.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let stretches = points.chunks(points.len().div_ceil(MOST_POINTS / 2));
    let extremes = stretches.flat_map(|stretch| {
        let mut sorted = stretch.to_vec();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut both = [sorted[0], sorted[sorted.len() - 1]];
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both
    });
    extremes.collect()
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
            x_label: "time (s)".to_owned(),
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
            ..Figure::default()
        }
    }

    #[test]
    fn a_figure_names_its_axes_lines_and_marks_and_leaves_gaps() {
        let svg = svg(&figure()).unwrap();
        for text in [
            "A title",
            "time (s)",
            "of rate",
            "of latency",
            "flap",
            "0.1",
        ] {
            assert!(
                svg.contains(&format!(">{text}<")),
                "{text} is missing: {svg}"
            );
        }
        assert!(svg.lines().count() == 1 && !svg.contains("NaN"));
        assert_eq!(svg.matches("<circle").count(), 6);
    }

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
        for text in ["Gbit/s", "up", "down", "one", "other", "6.03", "3.50"] {
            assert!(
                svg.contains(&format!(">{text}<")),
                "{text} is missing: {svg}"
            );
        }
        bars.series.clear();
        assert!(bars_svg(&bars).is_err(), "nothing cannot be drawn");
    }

    #[test]
    fn a_day_is_thinned_and_keeps_its_peaks() {
        let value = |second| if second == 40_000 { 99.0 } else { 1.0 };
        let points: Vec<_> = (0..86_400).map(|s| (f64::from(s), value(s))).collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MOST_POINTS && thinned.contains(&(40_000.0, 99.0)));
    }
}
