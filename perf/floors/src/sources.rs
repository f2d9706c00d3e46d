//! The files of a crate, as a tree of modules, and what each of them mentions: in `use`, in code, and in the arguments of
//! macros. Code for tests is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprUnsafe, Ident, ImplItemConst, Item, ItemConst, ItemMod, ItemUse, Lit,
    Macro, Meta, UseTree, Visibility,
};

/// A path, as its segments.
pub(crate) type Segments = Vec<String>;

/// A crate's files by the paths of their modules; the root's is empty.
pub(crate) type Sources = BTreeMap<Segments, File>;

/// One file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) lines: usize,
    /// Modules that have files of their own, and the files that they name.
    pub(crate) modules: Vec<(String, Option<String>)>,
    /// Names that `use` brings into scope.
    pub(crate) imports: Vec<Import>,
    /// Paths in code.
    pub(crate) paths: Vec<Segments>,
    pub(crate) constants: Vec<Constant>,
    /// Whether there is an `unsafe` block outside macros.
    pub(crate) is_unsafe: bool,
}

/// One name that `use` brings into scope; `*` for all of a module.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) path: Segments,
    pub(crate) is_reexport: bool,
}

pub(crate) struct Constant {
    pub(crate) name: String,
    /// Its source text, on one line.
    pub(crate) value: String,
    pub(crate) documentation: String,
}

/// Reads the crate whose root is this file.
///
/// # Errors
/// If a file cannot be read or parsed.
pub(crate) fn read(root: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    let directory = root.parent().unwrap_or(Path::new(""));
    add(&mut sources, root, Segments::new(), directory)?;
    Ok(sources)
}

/// Reads a file and, below `directory`, those of its modules.
fn add(sources: &mut Sources, path: &Path, module: Segments, directory: &Path) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
    let mut file = File {
        path: path.to_owned(),
        lines: text.lines().count(),
        ..File::default()
    };
    file.visit_file(&parsed);
    for (name, named) in &file.modules {
        let inner = directory.join(name);
        let path = match named {
            Some(named) => directory.join(named),
            None if inner.with_extension("rs").exists() => inner.with_extension("rs"),
            None => inner.join("mod.rs"),
        };
        let module = [&module[..], std::slice::from_ref(name)].concat();
        add(sources, &path, module, &inner)?;
    }
    sources.insert(module, file);
    Ok(())
}

impl<'ast> Visit<'ast> for File {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Const(it) => &it.attrs,
            Item::Struct(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_some() {
            return visit::visit_item_mod(self, module);
        }
        let file = values(&module.attrs, "path").next();
        self.modules.push((module.ident.to_string(), file));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.flatten(&item.tree, &mut Vec::new(), is_reexport);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.note_constant(&item.ident, &item.expr, &item.attrs);
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.note_constant(&item.ident, &item.expr, &item.attrs);
        visit::visit_impl_item_const(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast ExprUnsafe) {
        self.is_unsafe = true;
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|it| it.ident.to_string());
        self.paths.push(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast Macro) {
        self.scan(it.tokens.clone());
        visit::visit_macro(self, it);
    }
}

impl File {
    fn note_constant(&mut self, name: &Ident, value: &Expr, attributes: &[Attribute]) {
        let value = value.span().source_text().unwrap_or_default();
        let value: Vec<_> = value.split_whitespace().collect();
        let documentation: Vec<_> = values(attributes, "doc").collect();
        self.constants.push(Constant {
            name: name.to_string(),
            value: value.join(" "),
            documentation: documentation.join(" "),
        });
    }

    fn flatten(&mut self, tree: &UseTree, before: &mut Segments, is_reexport: bool) {
        let mut add = |name: String, last: Option<String>| {
            let path = before.iter().cloned().chain(last).collect();
            self.imports.push(Import {
                name,
                path,
                is_reexport,
            });
        };
        match tree {
            UseTree::Path(it) => {
                before.push(it.ident.to_string());
                self.flatten(&it.tree, before, is_reexport);
                before.pop();
            }
            UseTree::Name(it) if it.ident == "self" => {
                add(before.last().cloned().unwrap_or_default(), None);
            }
            UseTree::Name(it) => add(it.ident.to_string(), Some(it.ident.to_string())),
            UseTree::Rename(it) if it.ident == "self" => add(it.rename.to_string(), None),
            UseTree::Rename(it) => add(it.rename.to_string(), Some(it.ident.to_string())),
            UseTree::Glob(_) => add("*".to_owned(), None),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.flatten(tree, before, is_reexport);
                }
            }
        }
    }

    /// Finds paths among the tokens of a macro's arguments.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(it) if it.as_char() == ':' && colons < 2 => colons += 1,
                other => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.paths.push(path);
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    list.path.is_ident("cfg") && list.tokens.to_string().split(' ').any(|it| it == "test")
}

/// The values of the attributes `#[NAME = "VALUE"]`.
fn values(attributes: &[Attribute], name: &str) -> impl Iterator<Item = String> {
    let attributes = attributes.iter().filter(move |it| it.path().is_ident(name));
    attributes.filter_map(|it| {
        let Expr::Lit(value) = &it.meta.require_name_value().ok()?.value else {
            return None;
        };
        match &value.lit {
            Lit::Str(text) => Some(text.value().trim().to_owned()),
            _ => None,
        }
    })
}
