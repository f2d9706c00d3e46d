//! Lines with a name.

use std::fmt::{self, Write};

use convoy_process::paragraph::fill;

/// A line with a name, if there is a value.
pub(super) fn optional(
    out: &mut String,
    name: &str,
    value: Option<impl fmt::Display>,
) -> fmt::Result {
    value.map_or(Ok(()), |value| field(out, name, value))
}

/// A line with a name, or several if it is long.
pub(super) fn field(out: &mut String, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(out, "{}", fill(&format!("{name}: {value}"), "  ", "    "))
}
