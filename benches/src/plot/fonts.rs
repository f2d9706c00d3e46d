//! The font that text is measured with, and drawn with in pixels: it comes with the program, so that no
//! machine has to have one, and all draw the same.

use std::sync::OnceLock;

use plotters::style::{FontStyle, register_font};

use super::PlotError;

/// What pictures call it: an SVG leaves the choice to what shows it.
pub(super) const SANS: &str = "sans-serif";

/// Makes the font known to plotters, once.
pub(super) fn register() -> Result<(), PlotError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let is_registered = REGISTERED.get_or_init(|| {
        let styles = [
            (FontStyle::Normal, dejavu::sans::regular()),
            (FontStyle::Bold, dejavu::sans::bold()),
        ];
        styles
            .into_iter()
            .all(|(style, font)| register_font(SANS, style, font).is_ok())
    });
    is_registered
        .then_some(())
        .ok_or_else(|| PlotError("its font is malformed".to_owned()))
}
