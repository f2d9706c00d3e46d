//! Man pages: those of the commands from clap's descriptions, convoy.conf(5) from the keys'.

use std::io;

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::help;

const SOURCE: &str = concat!("convoy ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Convoy";

/// All pages by the names of their files.
pub(super) fn pages(program: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let configuration = ("convoy.conf.5".to_owned(), configuration()?);
    let mut pages = vec![configuration, page(program)?];
    for command in program.get_subcommands() {
        pages.push(page(command)?);
    }
    Ok(pages)
}

fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    if let Some(more) = command.get_after_help() {
        after_help(&mut rest, &more.to_string());
    }
    let related = match command.has_subcommands() {
        true => "convoy.conf(5), wg(8), wg-quick(8)",
        false => "convoy(1), convoy.conf(5)",
    };
    see_also(&mut rest, related);
    rest.to_writer(&mut text)?;
    Ok((man.get_filename(), text))
}

/// Text after the options: paragraphs, and listings under headings of their own.
fn after_help(page: &mut Roff, text: &str) {
    let mut is_in_notes = false;
    for block in text.split("\n\n") {
        if let Some((title, listing)) = headed(block) {
            page.control("SH", [title.to_uppercase().as_str()]);
            lines(page, listing);
            is_in_notes = false;
            continue;
        }
        match is_in_notes {
            true => page.control("PP", []),
            false => page.control("SH", ["NOTES"]),
        };
        is_in_notes = true;
        lines(page, block);
    }
}

/// The heading of a listing, and its lines, which are indented.
fn headed(block: &str) -> Option<(&str, &str)> {
    let (first, listing) = block.split_once('\n')?;
    let is_listing = listing.lines().all(|line| line.starts_with(' '));
    let title = first.strip_suffix(':')?;
    is_listing.then_some((title, listing))
}

/// Fills lines, except for indented ones.
fn lines(page: &mut Roff, text: &str) {
    let mut is_listing = false;
    for line in text.lines() {
        if line.starts_with(' ') != is_listing {
            is_listing = !is_listing;
            page.control(if is_listing { "nf" } else { "fi" }, []);
        }
        page.text([roman(line)]);
    }
    if is_listing {
        page.control("fi", []);
    }
}

fn configuration() -> io::Result<Vec<u8>> {
    let mut page = Roff::new();
    page.control("TH", ["convoy.conf", "5", "", SOURCE, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("convoy.conf - configuration of a WireGuard tunnel")]);
    page.control("SH", ["DESCRIPTION"]);
    let [first, second] = help::CONFIGURATION;
    page.text([roman(first)]);
    page.control("PP", []);
    page.text([roman(second)]);
    let mut section = "";
    for key in convoy_config::keys() {
        if key.section_name() != section {
            section = key.section_name();
            page.control("SH", [section]);
        }
        page.control("TP", []);
        let written = help::line(key);
        let (name, values) = written.split_once(" = ").unwrap_or((&written, ""));
        page.text([bold(name), roman(format!(" = {values}"))]);
        page.text([roman(key.meaning)]);
        page.control("br", []);
        page.text([roman(format!("Default: {}.", key.default))]);
    }
    page.control("SH", ["EXAMPLE"]);
    page.control("nf", []);
    for line in convoy_config::EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    see_also(&mut page, "convoy(1), convoy-check(1), wg(8), wg-quick(8)");
    let mut text = Vec::new();
    page.to_writer(&mut text)?;
    Ok(text)
}

fn see_also(page: &mut Roff, pages: &str) {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(pages)]);
}
