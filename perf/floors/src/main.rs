//! `convoy-floors`: prints the lines of each crate and the circles between its files. Its tests assert which crates may
//! depend on what.
//!
//! `make floors` runs it; `ARGS=CRATE` also shows what makes the circles of a crate. It reads `cargo metadata` and
//! sources, and changes nothing but the page of bounds (`make bounds`).

mod bounds;
mod crates;
mod graph;
mod sources;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::{env, fs};

use anyhow::Result;

fn main() -> Result<()> {
    // Of these crates, also what makes the circles.
    let wanted: Vec<_> = env::args().skip(1).collect();
    let workspace = crates::Workspace::read()?;
    if wanted == ["--bounds"] {
        let page = workspace.directory.join(bounds::PAGE);
        return Ok(fs::write(page, bounds::page(&workspace)?)?);
    }
    let mut text = String::new();
    for member in workspace.members {
        let sources = sources::read(&member.root)?;
        let lines: usize = sources.values().map(|it| it.lines).sum();
        let own = member.dependencies.iter();
        let own: Vec<_> = own.filter(|it| it.starts_with("convoy")).collect();
        writeln!(text, "{lines:6} lines  {} {own:?}", member.name)?;
        for circle in graph::circles(&sources) {
            let (count, files) = (circle.files.len(), circle.files.join(" "));
            writeln!(text, "       circle of {count}: {files}")?;
            if wanted.contains(&member.name) {
                for [from, to, path] in circle.arrows {
                    writeln!(text, "         {from} -> {to} by {path}")?;
                }
            }
        }
    }
    Ok(io::stdout().write_all(text.as_bytes())?)
}
