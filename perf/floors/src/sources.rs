//! The files of a crate, as a tree of modules.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use syn::visit::Visit as _;

use crate::paths::{Mentions, Segments};

/// A crate's files. Modules for tests are left out.
pub(crate) struct Sources {
    pub(crate) files: Vec<File>,
    /// Places in `files` by the module's path; the root's is empty.
    pub(crate) modules: HashMap<Segments, usize>,
}

/// One file.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// The module's path; empty for the root.
    pub(crate) module: Segments,
    pub(crate) mentions: Mentions,
    lines: usize,
}

impl Sources {
    /// Reads the crate whose root is this file.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut sources = Self {
            files: Vec::new(),
            modules: HashMap::new(),
        };
        let directory = root.parent().unwrap_or(Path::new("")).to_owned();
        sources.add(root, Segments::new(), &directory)?;
        Ok(sources)
    }

    /// Reads a file and, below `directory`, those of its modules.
    fn add(&mut self, path: &Path, module: Segments, directory: &Path) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let mut mentions = Mentions::default();
        mentions.visit_file(&parsed);
        let modules = mentions.modules.clone();
        self.modules.insert(module.clone(), self.files.len());
        self.files.push(File {
            path: path.to_owned(),
            module: module.clone(),
            mentions,
            lines: text.lines().count(),
        });
        for (name, file) in modules {
            let inner = directory.join(&name);
            let path = file.map_or_else(|| file_of(&inner), |file| directory.join(file));
            let module = [module.clone(), vec![name]].concat();
            self.add(&path, module, &inner)?;
        }
        Ok(())
    }

    /// Counts the lines of all files.
    pub(crate) fn lines(&self) -> usize {
        self.files.iter().map(|it| it.lines).sum()
    }
}

fn file_of(inner: &Path) -> PathBuf {
    let beside = inner.with_extension("rs");
    match beside.exists() {
        true => beside,
        false => inner.join("mod.rs"),
    }
}
