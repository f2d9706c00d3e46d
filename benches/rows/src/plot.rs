//! Plots rows as SVG with plotters: panels of lines over one horizontal axis, one line per contender.
//!
//! The viewer chooses the font; a font of our own only measures the text.

use std::{collections::BTreeMap, ops::Range};

use anyhow::Result;
use convoy_lab::measure::Sample;
use itertools::Itertools as _;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::row::{Row, Run};

/// A plot of the rows that have a place on an axis.
pub struct Plot {
    /// Name of the picture's file.
    pub file: &'static str,
    /// Headline.
    pub title: &'static str,
    /// The horizontal axis.
    pub axis: Axis,
    /// From top to bottom; panels without points are omitted.
    pub panels: Panels,
    /// Whether grey lines show the lowest and highest value.
    pub has_range: bool,
}

/// Label of an axis, with its unit, and its scale.
pub type Axis = (&'static str, Scale);

/// Scene, unit and scale of a panel.
pub type Panels = &'static [(&'static str, &'static str, Scale)];

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    #[default]
    Linear,
    /// Logarithmic, by powers of ten; values that are not positive are omitted.
    Logarithmic,
}

/// Scene of rows that are spans of time, from `at` to the value, drawn through all panels.
pub const EVENTS: &str = "events";

// Colours that everyone can tell apart (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x56, 0xB4, 0xE9),
    BLACK,
];
const GREY: RGBColor = RGBColor(0xBB, 0xBB, 0xBB);

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
/// Maximum points per line: more than a screen has columns.
const MOST_POINTS: usize = 2_000;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Points = Vec<(f64, f64)>;

/// One vertical axis and its lines, in drawing order.
struct Panel {
    label: String,
    scale: Scale,
    lines: Vec<Line>,
}

/// One quantity along the horizontal axis; a line without a name is not in the legend.
struct Line {
    name: String,
    colour: RGBColor,
    points: Points,
}

/// The time span of an event; events of one kind share a legend entry.
struct Mark<'a> {
    kind: &'a str,
    colour: RGBColor,
    span: Range<f64>,
}

impl Plot {
    /// A plot of medians alone.
    pub const fn new(file: &'static str, title: &'static str, axis: Axis, panels: Panels) -> Self {
        Self {
            file,
            title,
            axis,
            panels,
            has_range: false,
        }
    }

    /// Adds the lowest and highest values.
    pub const fn with_range(mut self) -> Self {
        self.has_range = true;
        self
    }

    /// Draws the rows of `run` as a single-line SVG document; `None` if none has a place in a panel.
    pub fn svg(&self, run: &Run) -> Result<Option<String>> {
        for (style, font) in [
            (FontStyle::Normal, dejavu::sans::regular()),
            (FontStyle::Bold, dejavu::sans::bold()),
        ] {
            register_font(FONT, style, font).map_err(|_| anyhow::anyhow!("malformed font"))?;
        }
        let panels = self.panels.iter().map(|panel| self.panel(*panel, run));
        let panels: Vec<_> = panels.filter(|it| it.places().count() > 0).collect();
        if panels.is_empty() {
            return Ok(None);
        }
        let marks = marks(&run.rows);
        let height = if panels.len() == 1 { ONLY_PANEL } else { PANEL };
        let size = (WIDTH, HEAD + height * panels.len() as u32 + FOOT);
        let mut document = String::new();
        let whole = SVGBackend::with_string(&mut document, size).into_drawing_area();
        whole.fill(&WHITE)?;
        let (head, mut rest) = whole.split_vertically(HEAD);
        self.draw_head(&head, &run.origin.line(), &marks)?;
        let (_, x_scale) = self.axis;
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        let places = lines.flat_map(|line| &line.points);
        let places = places.map(|point| x_scale.place(point.0));
        let across = x_scale.ends(places, 1.0);
        for (number, panel) in (1..).zip(&panels) {
            // The last panel has room for the horizontal axis.
            let foot = if number == panels.len() { FOOT } else { 0 };
            let (area, under) = rest.split_vertically(height + foot);
            self.draw(panel, &across, &marks, &area, foot)?;
            rest = under;
        }
        whole.present()?;
        drop((whole, head, rest));
        let line: String = document.lines().map(str::trim).collect();
        Ok(Some(line + "\n"))
    }

    /// Collects the lines of a panel: medians of each contender, over their range.
    fn panel(&self, (scene, unit, scale): (&str, &str, Scale), run: &Run) -> Panel {
        let is_here = |row: &&Row| row.scene == scene && row.unit == unit && row.at.is_some();
        let rows: Vec<_> = run.rows.iter().filter(is_here).collect();
        let contenders: Vec<_> = rows.iter().map(|row| &row.contender[..]).unique().collect();
        let mut lines = Vec::new();
        for (name, colour) in contenders.iter().zip(COLOURS.iter().cycle()) {
            let samples = samples(rows.iter().copied().filter(|row| row.contender == *name));
            let mut add = |name: &str, colour: RGBColor, value: fn(&Sample) -> f64| {
                lines.push(Line {
                    name: name.to_owned(),
                    colour,
                    points: samples.iter().map(|(at, it)| (*at, value(it))).collect(),
                });
            };
            if self.has_range {
                add("", GREY, |it| it.max);
                add("", GREY, |it| it.min);
            }
            let shown = if contenders.len() > 1 { *name } else { "" };
            add(shown, *colour, |it| it.median);
        }
        let label = match self.panels.iter().all(|(other, ..)| *other == scene) {
            true => unit.to_owned(),
            false => format!("{scene} ({unit})"),
        };
        Panel {
            label,
            scale,
            lines,
        }
    }

    /// Draws the title, the subtitle and the legend of marks.
    fn draw_head(&self, head: &Area<'_>, origin: &str, marks: &[Mark<'_>]) -> Result<()> {
        let mut x = Y_AXIS as i32 + 8;
        let large = (FONT, 22).into_font().style(FontStyle::Bold);
        head.draw(&Text::new(self.title, (x, 10), large))?;
        let small = (FONT, 14).into_font().color(&BLACK.mix(0.7));
        let range = match self.has_range {
            true => " · medians; grey: lowest and highest",
            false => "",
        };
        head.draw(&Text::new(format!("{origin}{range}"), (x, 38), small))?;
        let legend = marks.iter().map(|it| (it.kind, it.colour));
        for (name, colour) in legend.sorted_by_key(|(kind, _)| *kind).dedup() {
            head.draw(&Rectangle::new([(x, 63), (x + 14, 77)], colour.filled()))?;
            head.draw(&Text::new(name, (x + 20, 63), (FONT, 14).into_font()))?;
            x += 46 + name.chars().count() as i32 * LETTER;
        }
        Ok(())
    }

    fn draw(
        &self,
        panel: &Panel,
        across: &Range<f64>,
        marks: &[Mark<'_>],
        area: &Area<'_>,
        foot: u32,
    ) -> Result<()> {
        let (x_label, x_scale) = self.axis;
        let up = panel.scale.ends(panel.places(), HEADROOM);
        let mut chart = ChartBuilder::on(area)
            .margin_top(26)
            .margin_left(8)
            .margin_right(24)
            .y_label_area_size(Y_AXIS)
            .x_label_area_size(foot)
            .build_cartesian_2d(across.clone(), up.clone())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.4))
            .x_desc(if foot > 0 { x_label } else { "" })
            .y_desc(&panel.label)
            .axis_desc_style((FONT, 14).into_font())
            .label_style((FONT, 13).into_font())
            .x_labels(x_scale.ticks(across, 13))
            .y_labels(panel.scale.ticks(&up, 5))
            .x_label_formatter(&|place| x_scale.text(*place))
            .y_label_formatter(&|place| panel.scale.text(*place))
            .draw()?;
        for mark in marks {
            let corners = [(mark.span.start, up.start), (mark.span.end, up.end)];
            let stripe = Rectangle::new(corners, mark.colour.mix(0.4).filled());
            chart.plotting_area().draw(&stripe)?;
        }
        for line in &panel.lines {
            let points = thinned(&line.points).into_iter();
            let points = points.map(|(at, it)| (x_scale.place(at), panel.scale.place(it)));
            let points: Points = points.filter(|(_, place)| place.is_finite()).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), line.colour))?;
            if points.len() <= FEW {
                let dot = |point: &_| Circle::new(*point, 3, line.colour.filled());
                chart.draw_series(points.iter().map(dot))?;
            }
        }
        let mut right = WIDTH as i32 - 24;
        let named = panel.lines.iter().filter(|line| !line.name.is_empty());
        for line in named.rev() {
            let style = TextStyle::from((FONT, 14).into_font()).color(&line.colour);
            let style = style.pos(Pos::new(HPos::Right, VPos::Top));
            area.draw(&Text::new(&line.name[..], (right, 7), style))?;
            right -= line.name.chars().count() as i32 * LETTER + 20;
        }
        Ok(())
    }
}

/// Samples by place, in ascending order.
fn samples<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(f64, Sample)> {
    let values = rows.filter_map(|row| Some((row.at?, row.value)));
    let values: Vec<_> = values.sorted_by(|a, b| a.0.total_cmp(&b.0)).collect();
    let samples = values.chunk_by(|a, b| a.0 == b.0).filter_map(|place| {
        let values = place.iter().map(|(_, value)| *value);
        Some((place[0].0, Sample::of(values.collect())?))
    });
    samples.collect()
}

fn marks(rows: &[Row]) -> Vec<Mark<'_>> {
    let events = rows.iter().filter(|row| row.scene == EVENTS);
    let kinds = events.clone().map(|row| &row.contender[..]).unique();
    // The first two colours are those of lines.
    let colours: BTreeMap<_, _> = kinds.zip(COLOURS.into_iter().cycle().skip(2)).collect();
    let marks = events.filter_map(|row| {
        let (kind, span) = (&row.contender[..], row.at?..row.value);
        let colour = colours[kind];
        Some(Mark { kind, colour, span })
    });
    marks.collect()
}

impl Panel {
    /// The positions of the values that the axis can show.
    fn places(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let places = points.map(|point| self.scale.place(point.1));
        places.filter(|place| place.is_finite())
    }
}

/// Keeps the highest point of each of many equal intervals, so that every peak stays.
fn thinned(points: &[(f64, f64)]) -> Points {
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
        let (low, high) = places.minmax().into_option().unwrap_or_default();
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
    fn a_plot_of_a_day_keeps_its_peaks_and_names_what_is_in_it() {
        let value = |second| if second == 40_000 { 99.0 } else { 1.0 };
        let points: Points = (0..86_400).map(|s| (f64::from(s), value(s))).collect();
        let few = thinned(&points);
        assert!(few.len() <= MOST_POINTS && few.contains(&(40_000.0, 99.0)));
        let panels = &[("load", "kpps", Scale::Linear)];
        let plot = Plot::new("a.svg", "A title", ("time (s)", Scale::Linear), panels);
        let mut run = Run::new(Vec::new());
        assert!(plot.svg(&run).unwrap().is_none());
        for contender in ["sent", "arrived"] {
            let row = |(at, value)| Row::new("load", contender, ("", "kpps"), 0, value).at(at);
            run.rows.extend(few.iter().copied().map(row));
        }
        run.push(Row::new(EVENTS, "outage", ("", "s"), 0, 20.0).at(10.0));
        let svg = plot.svg(&run).unwrap().unwrap();
        let texts = [
            "A title", "time (s)", "kpps", "sent", "arrived", "outage", "100",
        ];
        for text in texts {
            assert!(svg.contains(&format!(">{text}<")), "{text}: {svg}");
        }
        assert_eq!(svg.lines().count(), 1);
    }

    #[test]
    fn a_place_shows_the_median_of_the_rounds_that_reached_it() {
        let row = |at, round, value| Row::new("a", "b", ("", "kpps"), round, value).at(at);
        let rows = [row(50.0, 0, 50.0), row(25.0, 0, 24.0), row(25.0, 1, 26.0)];
        let samples = samples(rows.iter());
        let medians: Points = samples.iter().map(|(at, it)| (*at, it.median)).collect();
        assert_eq!(medians, [(25.0, 25.0), (50.0, 50.0)]);
    }
}
