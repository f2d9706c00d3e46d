//! A graph of the files of a crate by their dependencies, and its circles.
//!
//! A file depends on the one that defines a name that it mentions. A re-export is no dependency, of neither side.

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use crate::sources::{File, Segments, Sources};

/// Re-exports that one path may lead through.
const MAX_REEXPORTS: usize = 16;

/// Files that depend on each other.
pub(crate) struct Circle {
    /// Their modules.
    pub(crate) files: Vec<String>,
    /// Dependencies among them: from, to, and the path that is mentioned.
    pub(crate) arrows: Vec<[String; 3]>,
}

/// Finds the circles of a crate, the largest first.
pub(crate) fn circles(sources: &Sources) -> Vec<Circle> {
    let mut graph = DiGraphMap::<&[String], &[String]>::new();
    for (module, file) in sources {
        let imports = file.imports.iter().filter(|it| !it.is_reexport);
        for path in imports.map(|it| &it.path).chain(&file.paths) {
            let target = absolute(module, file, path).and_then(|path| definer(sources, path));
            if let Some(target) = target.filter(|target| target != module) {
                graph.add_edge(module, target, path);
            }
        }
    }
    let name = |module: &[String]| match module {
        [] => "(root)".to_owned(),
        module => module.join("::"),
    };
    let circle = |files: Vec<&[String]>| {
        let arrows = graph.all_edges();
        let arrows = arrows.filter(|(from, to, _)| files.contains(from) && files.contains(to));
        Circle {
            arrows: arrows
                .map(|(from, to, path)| [name(from), name(to), path.join("::")])
                .collect(),
            files: files.into_iter().map(name).collect(),
        }
    };
    let found = tarjan_scc(&graph).into_iter();
    let mut circles: Vec<_> = found.filter(|it| it.len() > 1).map(circle).collect();
    for circle in &mut circles {
        circle.files.sort();
        circle.arrows.sort();
    }
    circles.sort_by_key(|it| (usize::MAX - it.files.len(), it.files.clone()));
    circles
}

/// The path from the crate's root; `None` if it leads out of the crate or is a name alone.
fn absolute(module: &[String], file: &File, path: &[String]) -> Option<Segments> {
    let (first, rest) = path.split_first()?;
    match &**first {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|it| *it == "super").count();
            let depth = module.len().checked_sub(ups)?;
            Some([&module[..depth], &path[ups..]].concat())
        }
        _ if rest.is_empty() => None,
        name => {
            let import = file.imports.iter().find(|it| it.name == name);
            if let Some(import) = import.filter(|it| it.path[0] != name) {
                return absolute(module, file, &[&import.path, rest].concat());
            }
            let is_own = file.modules.iter().any(|(own, _)| own == name);
            is_own.then(|| [module, path].concat())
        }
    }
}

/// The file that defines what a path leads to; `None` if that is a module.
fn definer(sources: &Sources, mut path: Segments) -> Option<&[String]> {
    'path: for _ in 0..MAX_REEXPORTS {
        let mut module = Segments::new();
        let mut rest = path.iter();
        for segment in rest.by_ref() {
            let inner = [&module[..], std::slice::from_ref(segment)].concat();
            if sources.contains_key(&inner) {
                module = inner;
                continue;
            }
            let (module, file) = sources.get_key_value(&module)?;
            let mut imports = file.imports.iter();
            let Some(import) = imports.find(|it| it.name == *segment) else {
                return Some(module);
            };
            // A name of another crate.
            let before = absolute(module, file, &import.path)?;
            path = before.into_iter().chain(rest.cloned()).collect();
            continue 'path;
        }
        return None;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{crates::Workspace, sources::read};

    #[test]
    fn no_circle_has_more_than_two_files() {
        for member in Workspace::read().unwrap().members {
            for Circle { files, .. } in circles(&read(&member.root).unwrap()) {
                assert!(files.len() <= 2, "{}: {files:?}", member.name);
            }
        }
    }

    #[test]
    fn no_crate_has_more_than_8_000_lines_besides_its_tests() {
        for member in Workspace::read().unwrap().members {
            let sources = read(&member.root).unwrap();
            let lines: usize = sources.values().map(|file| file.lines).sum();
            assert!(lines <= 8_000, "{}: {lines}", member.name);
        }
    }

    #[test]
    fn a_file_depends_on_the_one_that_defines_a_name() {
        let circles = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = directory.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let sources = read(&directory.path().join("lib.rs")).unwrap();
            let circles = circles(&sources).into_iter();
            circles.map(|it| it.files).collect::<Vec<_>>()
        };
        let root = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");
        let a = ("a.rs", "pub struct A(crate::B);");
        // By a re-export, an import of a module, in a macro, and in the other direction not at all.
        for (b, is_circle) in [
            ("pub struct B; use super::A;", true),
            ("pub struct B; use crate::a; fn f(_: a::A) {}", true),
            ("pub struct B; fn f() { x!(y, [crate::a::A]) }", true),
            ("pub struct B; use crate::a;", false),
            ("struct B; #[cfg(test)] mod tests { use crate::A; }", false),
            ("pub struct B; use std::a; fn f() { a::A }", false),
        ] {
            let found = circles(&[root, a, ("b.rs", b)]);
            assert_eq!(!found.is_empty(), is_circle, "{b}: {found:?}");
        }
        let inner = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; struct A; fn f() { b::f() }"),
            ("a/b.rs", "pub fn f() { super::A }"),
        ];
        assert_eq!(circles(&inner), [["a", "a::b"]]);
    }
}
