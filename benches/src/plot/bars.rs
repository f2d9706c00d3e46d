//! Groups of bars over one axis: who reaches what.
//!
//! ```text
//!  title
//!  subtitle                  ■ series ■ series
//!  │   6.0
//!  │   ██ 3.5       5.5
//!  │   ██ ██        ██ 3.2
//!  └───██─██────────██─██───
//!      group        group
//! ```

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Colour, PlotError,
    draw::rgb,
    fonts::{self, SANS},
};

/// A chart whose bars begin at zero.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// Where it was measured, and when.
    pub subtitle: String,
    /// The axis with its unit.
    pub y_label: String,
    /// From left to right.
    pub groups: Vec<String>,
    /// From left to right in each group.
    pub series: Vec<BarSeries>,
}

/// One bar in each group.
#[derive(Clone, Debug)]
pub struct BarSeries {
    /// For the legend.
    pub name: String,
    /// What it is drawn with.
    pub colour: Colour,
    /// By group; none leaves a gap.
    pub values: Vec<Option<f64>>,
}

const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 460;
const HEAD: u32 = 92;
const FOOT: u32 = 44;
const Y_AXIS: u32 = 70;
/// How much of a group's width its bars take.
const FILLED: f64 = 0.8;
/// How much of the axis lies above the highest bar: its number.
const HEADROOM: f64 = 1.1;

/// Draws `bars` as an SVG document.
///
/// # Errors
/// When there is no bar to draw.
pub fn bars_svg(bars: &Bars) -> Result<String, PlotError> {
    let mut document = String::new();
    draw(
        bars,
        SVGBackend::with_string(&mut document, (WIDTH, HEIGHT)),
    )?;
    document.push('\n');
    Ok(document)
}

/// Draws `bars` as a PNG file.
///
/// # Errors
/// When there is no bar to draw.
pub fn bars_png(bars: &Bars) -> Result<Vec<u8>, PlotError> {
    let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
    draw(
        bars,
        BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)),
    )?;
    let failed = |error: png::EncodingError| PlotError(error.to_string());
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn draw<DB: DrawingBackend>(bars: &Bars, backend: DB) -> Result<(), PlotError> {
    fonts::register()?;
    let values = bars.series.iter().flat_map(|series| &series.values);
    let highest = values.flatten().copied().reduce(f64::max);
    let highest = highest.ok_or_else(|| PlotError("it has no bars".to_owned()))?;
    let whole = backend.into_drawing_area();
    whole.fill(&WHITE)?;
    let (head, below) = whole.split_vertically(HEAD);
    draw_head(bars, &head)?;
    let mut chart = ChartBuilder::on(&below)
        .margin_left(8)
        .margin_right(24)
        .margin_bottom(FOOT)
        .y_label_area_size(Y_AXIS)
        .build_cartesian_2d(0.0..bars.groups.len() as f64, 0.0..highest * HEADROOM)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.4))
        .y_desc(&bars.y_label)
        .axis_desc_style((SANS, 16).into_font())
        .label_style((SANS, 14).into_font())
        .y_labels(6)
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    let area = chart.plotting_area();
    let width = FILLED / bars.series.len() as f64;
    for (place, series) in bars.series.iter().enumerate() {
        let colour = rgb(series.colour);
        for (group, value) in series.values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let left = group as f64 + (1.0 - FILLED) / 2.0 + place as f64 * width;
            let right = left + width * 0.92;
            let corners = [(left, 0.0), (right, value)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            let above = centred((SANS, 14).into_font(), VPos::Bottom);
            let middle = ((left + right) / 2.0, value);
            area.draw(&Text::new(format!("{value:.2}"), middle, above))?;
        }
    }
    for (group, name) in bars.groups.iter().enumerate() {
        let (x, y) = area.map_coordinate(&(group as f64 + 0.5, 0.0));
        let style = centred((SANS, 16).into_font(), VPos::Top);
        whole.draw(&Text::new(name.clone(), (x, y + 10), style))?;
    }
    whole.present()?;
    Ok(())
}

fn draw_head<DB: DrawingBackend>(
    bars: &Bars,
    area: &DrawingArea<DB, Shift>,
) -> Result<(), PlotError> {
    let left = Y_AXIS as i32 + 8;
    let title = (SANS, 22).into_font().style(FontStyle::Bold).color(&BLACK);
    area.draw(&Text::new(bars.title.clone(), (left, 10), title))?;
    let small = (SANS, 14).into_font().color(&BLACK.mix(0.7));
    area.draw(&Text::new(bars.subtitle.clone(), (left, 38), small))?;
    let mut x = left;
    for series in &bars.series {
        let square = Rectangle::new([(x, 64), (x + 14, 78)], rgb(series.colour).filled());
        area.draw(&square)?;
        let font = (SANS, 15).into_font();
        let (width, _) = font
            .box_size(&series.name)
            .map_err(|error| PlotError(error.to_string()))?;
        let style = font.color(&BLACK.mix(0.85));
        area.draw(&Text::new(series.name.clone(), (x + 20, 63), style))?;
        x += 46 + width as i32;
    }
    Ok(())
}

fn centred(font: FontDesc<'_>, vertical: VPos) -> TextStyle<'_> {
    let style = TextStyle::from(font).color(&BLACK);
    style.pos(Pos::new(HPos::Center, vertical))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars() -> Bars {
        let series = |name: &str, colour, values: [Option<f64>; 2]| BarSeries {
            name: name.to_owned(),
            colour,
            values: values.into(),
        };
        Bars {
            title: "A title".to_owned(),
            subtitle: "2 × somewhere".to_owned(),
            y_label: "Gbit/s".to_owned(),
            groups: ["up", "down"].map(str::to_owned).into(),
            series: vec![
                series("one", Colour::Blue, [Some(6.03), Some(5.56)]),
                series("other", Colour::Grey, [Some(3.5), None]),
            ],
        }
    }

    #[test]
    fn every_group_series_and_value_is_named() {
        let svg = bars_svg(&bars()).unwrap();
        for text in [
            "A title",
            "2 × somewhere",
            "Gbit/s",
            "up",
            "down",
            "one",
            "other",
            "6.03",
            "5.56",
            "3.50",
        ] {
            assert!(svg.lines().any(|line| line == text), "{text} is missing");
        }
    }

    #[test]
    fn pixels_show_bars_of_each_colour_and_text() {
        let file = bars_png(&bars()).unwrap();
        let decoder = png::Decoder::new(std::io::Cursor::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(reader.info().size(), (WIDTH, HEIGHT));
        let count = |wanted: RGBColor| {
            let all = pixels.chunks_exact(3);
            all.filter(|rgb| **rgb == [wanted.0, wanted.1, wanted.2])
                .count()
        };
        assert!(count(rgb(Colour::Blue)) > 10_000);
        assert!(count(rgb(Colour::Grey)) > 5_000);
        assert!(count(BLACK) > 100, "the title");
    }

    #[test]
    fn nothing_cannot_be_drawn() {
        let mut bars = bars();
        bars.series.clear();
        assert!(bars_svg(&bars).is_err());
        assert!(bars_png(&bars).is_err());
    }
}
