//! Figures of panels over one horizontal axis, as SVG.
//!
//! ```text
//!  title
//!  subtitle                       ▏ mark  ▏ mark
//!  ┌──────────────▏───────────▏──────────────┐
//!  │ panel        ▏           ▏              │
//!  ├──────────────▏───────────▏──────────────┤
//!  │ panel        ▏           ▏              │
//!  └──────────────▏───────────▏──────────────┘
//!                   x label
//! ```
//!
//! [`Bars`] compare instead, as SVG or in pixels. The font of an SVG's text is left to whatever shows
//! the picture.

mod bars;
mod draw;
mod fonts;
mod thin;

use thiserror::Error;

pub use bars::{BarSeries, Bars, bars_png, bars_svg};

/// Several panels, one below the other, that share their horizontal axis.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What is shown.
    pub title: String,
    /// Where it was measured, and when.
    pub subtitle: String,
    /// The horizontal axis with its unit.
    pub x_label: String,
    /// How it is placed.
    pub x_scale: Scale,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// What happened, drawn through all panels.
    pub marks: Vec<Mark>,
}

/// One vertical axis and what is drawn against it.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The vertical axis with its unit.
    pub y_label: String,
    /// How values are placed on it.
    pub scale: Scale,
    /// Drawn in this order.
    pub lines: Vec<Line>,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Logarithmic,
}

/// One quantity over time, or over whatever the horizontal axis is.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend; lines of an empty name are left out of it.
    pub name: String,
    /// What it is drawn with.
    pub colour: Colour,
    /// From left to right; a value that is not finite leaves a gap.
    pub points: Vec<(f64, f64)>,
}

/// A time, or a span of time, at which something happened.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What happened: marks of one kind appear once in the legend.
    pub kind: String,
    /// What it is drawn with.
    pub colour: Colour,
    /// When it began.
    pub from: f64,
    /// When it ended.
    pub until: f64,
}

/// Colours that are told apart by everyone (Okabe and Ito, 2008).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// `#0072B2`
    Blue,
    /// `#D55E00`
    Vermilion,
    /// `#009E73`
    Green,
    /// `#CC79A7`
    Purple,
    /// `#E69F00`
    Orange,
    /// `#56B4E9`
    Sky,
    /// `#000000`
    Black,
    /// `#BBBBBB`, for what is of less interest.
    Grey,
}

/// Why a figure could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw the figure: {0}")]
pub struct PlotError(String);

/// Draws `figure` as an SVG document.
///
/// # Errors
///
/// When the figure has no panel, or a panel has nothing to draw.
pub fn svg(figure: &Figure) -> Result<String, PlotError> {
    fonts::register()?;
    let mut document = String::new();
    draw::figure(figure, &mut document)?;
    // The drawing's end is written when its backend is dropped.
    document.push('\n');
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let line = |name: &str, colour, values: [f64; 4]| Line {
            name: name.to_owned(),
            colour,
            points: (0..4).map(f64::from).zip(values).collect(),
        };
        Figure {
            title: "A title".to_owned(),
            subtitle: "somewhere".to_owned(),
            x_label: "time (s)".to_owned(),
            x_scale: Scale::Linear,
            panels: vec![
                Panel {
                    y_label: "rate (Mbit/s)".to_owned(),
                    scale: Scale::Linear,
                    lines: vec![line("up", Colour::Blue, [1.0, 2.0, f64::NAN, 3.0])],
                },
                Panel {
                    y_label: "latency (ms)".to_owned(),
                    scale: Scale::Logarithmic,
                    lines: vec![line("p99", Colour::Vermilion, [0.1, 0.0, 20.0, 5.0])],
                },
            ],
            marks: vec![Mark {
                kind: "flap".to_owned(),
                colour: Colour::Purple,
                from: 1.0,
                until: 1.5,
            }],
        }
    }

    #[test]
    fn a_figure_names_its_axes_lines_and_marks() {
        let svg = svg(&figure()).unwrap();
        let texts = [
            "A title",
            "somewhere",
            "time (s)",
            "rate (Mbit/s)",
            "latency (ms)",
            "up",
            "p99",
            "flap",
        ];
        for text in texts {
            assert!(svg.lines().any(|line| line == text), "{text} is missing");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_value_that_is_missing_leaves_a_gap() {
        let lines = |figure: &Figure| svg(figure).unwrap().matches("<polyline").count();
        let mut whole = figure();
        whole.panels[0].lines[0].points[2].1 = 2.0;
        assert_eq!(lines(&figure()), lines(&whole) + 1);
    }

    #[test]
    fn few_points_are_dots_too_and_many_are_not() {
        let dots = |figure: &Figure| svg(figure).unwrap().matches("<circle").count();
        // One value is missing, and a zero has no logarithm.
        assert_eq!(dots(&figure()), 6);
        let mut many = figure();
        many.panels[0].lines[0].points = (0..100).map(|n| (f64::from(n), 1.0)).collect();
        assert_eq!(dots(&many), 3);
    }

    #[test]
    fn a_logarithmic_axis_begins_at_the_first_point_and_not_at_zero() {
        let mut sizes = figure();
        sizes.x_scale = Scale::Logarithmic;
        sizes.marks.clear();
        for line in sizes.panels.iter_mut().flat_map(|panel| &mut panel.lines) {
            for (n, point) in line.points.iter_mut().enumerate() {
                point.0 = 10f64.powi(n as i32 + 1);
            }
        }
        let svg = svg(&sizes).unwrap();
        for tick in ["10", "100", "1000", "10000"] {
            assert!(svg.lines().any(|line| line == tick), "{tick} is missing");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn nothing_cannot_be_drawn() {
        let mut empty = figure();
        empty.panels[1].lines[0].points.clear();
        assert!(svg(&empty).is_err());
        empty.panels.clear();
        assert!(svg(&empty).is_err());
    }
}
