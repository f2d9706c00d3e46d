//! Plots figures as SVG with plotters: panels of lines over one horizontal axis, and groups of bars.
//!
//! The viewer chooses the font; a font of our own only measures the text.

use std::ops::Range;

use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Several panels, one below the other, over the same horizontal axis. Axis labels name the unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Where and when the figure was measured.
    pub(crate) subtitle: String,
    pub(crate) x_label: String,
    pub(crate) x_scale: Scale,
    /// From top to bottom; panels without points are omitted.
    pub(crate) panels: Vec<Panel>,
    /// Spans of events, drawn through all panels.
    pub(crate) marks: Vec<Mark>,
    /// Names for the positions 0, 1, … on the horizontal axis; their points are then drawn as bars.
    pub(crate) groups: Vec<String>,
}

/// One vertical axis and its lines, in drawing order.
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
    /// Logarithmic, by powers of ten; values that are not positive are omitted.
    Logarithmic,
}

/// One quantity along the horizontal axis; a line without a name is not in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// The time span of an event; events of one kind share a legend entry.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) kind: &'static str,
    pub(crate) colour: RGBColor,
    pub(crate) span: Range<f64>,
}

// Colours that everyone can tell apart (Okabe and Ito, 2008).
pub(crate) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xB2);
pub(crate) const VERMILION: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9E, 0x73);
pub(crate) const PURPLE: RGBColor = RGBColor(0xCC, 0x79, 0xA7);
pub(crate) const ORANGE: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
pub(crate) const SKY: RGBColor = RGBColor(0x56, 0xB4, 0xE9);
/// For lines of minor interest.
pub(crate) const GREY: RGBColor = RGBColor(0xBB, 0xBB, 0xBB);

const FONT: &str = "sans-serif";
const WIDTH: u32 = 1_200;
const HEAD: u32 = 84;
const FOOT: u32 = 46;
const PANEL: u32 = 196;
/// The height of a single panel.
const ONLY_PANEL: u32 = 340;
/// Room for the numbers and the label of a vertical axis.
const Y_AXIS: u32 = 78;
/// Approximate width of a letter.
const LETTER: i32 = 8;
/// Lines with at most this many points get dots.
const FEW: usize = 32;
/// Headroom above the highest value, as a share of the axis.
const HEADROOM: f64 = 1.12;
/// The share of a group's width that its bars take.
const FILLED: f64 = 0.8;
/// Maximum points per line: more than a screen has columns.
const MOST_POINTS: usize = 2_000;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws `figure` as a single-line SVG document.
///
/// # Errors
/// If no panel has points.
pub(crate) fn svg(figure: &Figure) -> anyhow::Result<String> {
    for (style, font) in [
        (FontStyle::Normal, dejavu::sans::regular()),
        (FontStyle::Bold, dejavu::sans::bold()),
    ] {
        register_font(FONT, style, font).map_err(|_| anyhow::anyhow!("the font is malformed"))?;
    }
    let panels = figure.panels.iter();
    let panels: Vec<&Panel> = panels.filter(|it| it.places().count() > 0).collect();
    anyhow::ensure!(!panels.is_empty(), "nothing to draw for {}", figure.title);
    let height = if panels.len() == 1 { ONLY_PANEL } else { PANEL };
    let size = (WIDTH, HEAD + height * panels.len() as u32 + FOOT);
    let mut document = String::new();
    let whole = SVGBackend::with_string(&mut document, size).into_drawing_area();
    whole.fill(&WHITE)?;
    let (head, mut rest) = whole.split_vertically(HEAD);
    figure.draw_head(&head)?;
    for (number, panel) in (1..).zip(&panels) {
        // The last panel has room for the horizontal axis.
        let foot = if number == panels.len() { FOOT } else { 0 };
        let (area, under) = rest.split_vertically(height + foot);
        panel.draw(figure, &area, foot)?;
        rest = under;
    }
    whole.present()?;
    drop((whole, head, rest));
    Ok(document.lines().map(str::trim).collect::<String>() + "\n")
}

impl Figure {
    /// Draws the title, the subtitle and the legend of marks or bars.
    fn draw_head(&self, head: &Area<'_>) -> anyhow::Result<()> {
        let mut x = Y_AXIS as i32 + 8;
        let large = (FONT, 22).into_font().style(FontStyle::Bold);
        head.draw(&Text::new(&self.title[..], (x, 10), large))?;
        let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
        head.draw(&Text::new(&self.subtitle[..], (x, 38), small))?;
        let mut legend: Vec<_> = self.marks.iter().map(|it| (it.kind, it.colour)).collect();
        legend.sort_unstable_by_key(|(kind, _)| *kind);
        legend.dedup();
        if !self.groups.is_empty() {
            let bars = self.panels.iter().flat_map(|panel| &panel.lines);
            legend.extend(bars.map(|bars| (&bars.name[..], bars.colour)));
        }
        for (name, colour) in legend {
            head.draw(&Rectangle::new([(x, 63), (x + 14, 77)], colour.filled()))?;
            head.draw(&Text::new(name, (x + 20, 63), (FONT, 14).into_font()))?;
            x += 46 + name.chars().count() as i32 * LETTER;
        }
        Ok(())
    }

    /// The label at a position on the horizontal axis.
    fn at(&self, place: f64) -> String {
        match self.groups.is_empty() {
            true => self.x_scale.text(place),
            false => self.groups[place as usize].clone(),
        }
    }
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

    /// The positions of the values that the axis can show.
    fn places(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let places = points.map(|point| self.scale.place(point.1));
        places.filter(|place| place.is_finite())
    }

    fn draw(&self, figure: &Figure, area: &Area<'_>, foot: u32) -> anyhow::Result<()> {
        let lines = figure.panels.iter().flat_map(|panel| &panel.lines);
        let places = lines.flat_map(|line| &line.points);
        let places = places.map(|point| figure.x_scale.place(point.0));
        let x_label = if foot > 0 { &figure.x_label[..] } else { "" };
        let (ends, ticks) = match figure.groups.len() {
            0 => (figure.x_scale.ends(places, 1.0), 13),
            groups => (-0.5..groups as f64 - 0.5, groups),
        };
        let up = self.scale.ends(self.places(), HEADROOM);
        let mut chart = ChartBuilder::on(area)
            .margin_top(26)
            .margin_left(8)
            .margin_right(24)
            .y_label_area_size(Y_AXIS)
            .x_label_area_size(foot)
            .build_cartesian_2d(ends.clone(), up.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.4))
            .x_desc(x_label)
            .y_desc(&self.y_label)
            .axis_desc_style((FONT, 14).into_font())
            .label_style((FONT, 13).into_font())
            .x_labels(figure.x_scale.ticks(&ends, ticks))
            .y_labels(self.scale.ticks(&up, 5))
            .x_label_formatter(&|place| figure.at(*place))
            .y_label_formatter(&|place| self.scale.text(*place))
            .draw()?;
        for mark in &figure.marks {
            let corners = [(mark.span.start, up.start), (mark.span.end, up.end)];
            let stripe = Rectangle::new(corners, mark.colour.mix(0.4).filled());
            chart.plotting_area().draw(&stripe)?;
        }
        match figure.groups.is_empty() {
            true => self.draw_lines(figure.x_scale, &mut chart, area),
            false => self.draw_bars(&chart),
        }
    }

    fn draw_lines(&self, x: Scale, chart: &mut Chart<'_>, area: &Area<'_>) -> anyhow::Result<()> {
        for Line { points, colour, .. } in &self.lines {
            let points = thinned(points).into_iter();
            let points = points.map(|(at, value)| (x.place(at), self.scale.place(value)));
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

    fn draw_bars(&self, chart: &Chart<'_>) -> anyhow::Result<()> {
        let width = FILLED / self.lines.len() as f64;
        let style = TextStyle::from((FONT, 14).into_font());
        let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
        for (place, bars) in self.lines.iter().enumerate() {
            for (group, value) in &bars.points {
                let left = group - FILLED / 2.0 + place as f64 * width;
                let right = left + width * 0.92;
                let bar = Rectangle::new([(left, 0.0), (right, *value)], bars.colour.filled());
                chart.plotting_area().draw(&bar)?;
                let above = ((left + right) / 2.0, *value);
                let text = Text::new(format!("{value:.2}"), above, style.clone());
                chart.plotting_area().draw(&text)?;
            }
        }
        Ok(())
    }
}

/// Keeps the highest point of each of many equal intervals, so that every peak stays.
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

    /// Formats the number at a position without trailing zeros.
    fn text(self, place: f64) -> String {
        let value = match self {
            Self::Linear => place,
            Self::Logarithmic => 10_f64.powf(place),
        };
        format!("{}", (value * 1e3).round() / 1e3)
    }

    /// The ends of an axis that holds `places`, with `room` above the highest value.
    fn ends(self, places: impl Iterator<Item = f64>, room: f64) -> Range<f64> {
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
            (it.min(low), it.max(high))
        });
        match self {
            Self::Linear => low.min(0.0)..(high * room).max(low.min(0.0) + 1.0),
            Self::Logarithmic => low.floor()..(high + room.log10()).ceil().max(low.floor() + 1.0),
        }
    }

    /// A logarithmic axis has one tick per power of ten.
    fn ticks(self, ends: &Range<f64>, most: usize) -> usize {
        match self {
            Self::Linear => most,
            Self::Logarithmic => (ends.end - ends.start) as usize + 1,
        }
    }
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
