//! The page of bounds, made from the constants.
//!
//! A bound is a constant called `MAX_…`, `MOST_…`, `LONGEST_…` or `…_LIMIT`. Its documentation says what it bounds; where
//! it has none, its name does.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use syn::{
    Attribute, Expr, ExprLit, Ident, Lit, Meta,
    spanned::Spanned as _,
    visit::{self, Visit},
};

use crate::{crates::Member, sources::Sources};

/// Place of the page in the workspace.
pub(crate) const PAGE: &str = "rust/BOUNDS.md";

const HEAD: &str = "# Bounds

Every queue, table and wait has a bound, by crate and file. `make bounds` writes this page from the constants, and a test
compares them. What happens beyond a bound is said at the constant; drops have a counter in `convoy stats`.
";

/// Crates whose bounds matter to users: tools have their own.
const LEFT_OUT: [&str; 9] = [
    "convoy-benches",
    "convoy-floors",
    "convoy-fuzz",
    "convoy-lab",
    "convoy-perf",
    "convoy-rows",
    "convoy-stages",
    "convoy-suite",
    "convoy-turn-server",
];

/// Makes the page.
///
/// # Errors
/// If a source cannot be read.
pub(crate) fn page(members: &[Member]) -> Result<String> {
    let mut page = HEAD.to_owned();
    for member in members.iter().filter(|it| !LEFT_OUT.contains(&&*it.name)) {
        let sources = Sources::read(&member.root)?;
        let mut rows = String::new();
        for file in &sources.files {
            let text = fs::read_to_string(&file.path)?;
            let mut found = Constants::default();
            found.visit_file(&syn::parse_file(&text)?);
            let directory = member.root.parent().context("a crate has a directory")?;
            let place = file.path.strip_prefix(directory)?.display();
            for Constant {
                name,
                value,
                meaning,
            } in found.0
            {
                writeln!(rows, "| {meaning} | `{value}` | `{name}`, `{place}` |")?;
            }
        }
        if !rows.is_empty() {
            write!(
                page,
                "\n## {}\n\n| what | bound | constant |\n|---|---|---|\n{rows}",
                member.name
            )?;
        }
    }
    Ok(page)
}

struct Constant {
    name: String,
    value: String,
    meaning: String,
}

/// The bounds of a file. Code for tests is left out.
#[derive(Default)]
struct Constants(Vec<Constant>);

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_none() || module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.take(&item.ident, &item.expr, &item.attrs);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.take(&item.ident, &item.expr, &item.attrs);
    }
}

impl Constants {
    fn take(&mut self, name: &Ident, value: &Expr, attributes: &[Attribute]) {
        let name = name.to_string();
        let is_bound = ["MAX_", "MOST", "LONGEST"]
            .iter()
            .any(|it| name.starts_with(it));
        if !is_bound && !name.ends_with("LIMIT") || name == "HOP_LIMIT" {
            return;
        }
        let documented = sentence(attributes);
        let meaning = documented.unwrap_or_else(|| name.to_lowercase().replace('_', " "));
        let value = value.span().source_text().unwrap_or_default();
        self.0.push(Constant {
            name,
            value: value.split_whitespace().collect::<Vec<_>>().join(" "),
            meaning,
        });
    }
}

/// First sentence of a documentation; `None` if there is none.
fn sentence(attributes: &[Attribute]) -> Option<String> {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(it) if it.path.is_ident("doc") => match &it.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(line),
                    ..
                }) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
    let text = lines.collect::<Vec<_>>().join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at);
    let sentence = text[..end].trim_end_matches('.').replace('|', "\\\\|");
    (!sentence.is_empty()).then_some(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::{members, workspace};

    #[test]
    fn the_page_is_that_of_the_constants() {
        let written = fs::read_to_string(workspace().unwrap().join(PAGE)).unwrap();
        assert!(
            page(&members().unwrap()).unwrap() == written,
            "run `make bounds`"
        );
    }
}
