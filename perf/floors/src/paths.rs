//! Paths that a file mentions: in `use`, in code, and in the arguments of macros.

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, ItemMod, ItemUse, Macro, Meta, UseTree, Visibility,
    visit::{self, Visit},
};

/// A path, as its segments.
pub(crate) type Segments = Vec<String>;

/// Names and paths of one file. Code for tests is left out.
#[derive(Default)]
pub(crate) struct Mentions {
    /// Modules that have files of their own.
    pub(crate) modules: Vec<(String, Option<String>)>,
    /// Names that `use` brings into scope.
    pub(crate) imports: Vec<Import>,
    /// Paths in code.
    pub(crate) paths: Vec<Segments>,
}

/// One name that `use` brings into scope; `*` for all of a module.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) path: Segments,
    pub(crate) is_reexport: bool,
}

impl<'ast> Visit<'ast> for Mentions {
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
        let file = module.attrs.iter().find_map(path_attribute);
        self.modules.push((module.ident.to_string(), file));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.flatten(&item.tree, &mut Vec::new(), is_reexport);
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

impl Mentions {
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

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(it) = &attribute.meta else {
        return None;
    };
    match &it.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(path),
            ..
        }) if it.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}
