//! `convoy-floors`: prints the lines of each crate and the circles between its files. Its tests assert which crates may
//! depend on what.
//!
//! `make floors` runs it. It reads `cargo metadata` and sources, and never builds or changes anything.

mod crates;
mod graph;
mod paths;
mod sources;

use anyhow::Result;

fn main() -> Result<()> {
    for member in crates::members()? {
        let sources = sources::Sources::read(&member.root)?;
        let circles = graph::circles(&sources);
        let own = member
            .dependencies
            .iter()
            .filter(|it| it.starts_with("convoy"));
        let own: Vec<_> = own.map(String::as_str).collect();
        println!(
            "{:6} lines  {} ({})",
            sources.lines(),
            member.name,
            own.join(" ")
        );
        for circle in circles {
            println!(
                "       circle of {} files: {}",
                circle.len(),
                circle.join(" ")
            );
        }
    }
    Ok(())
}
