//! Errors and warnings, as a compiler shows them.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::{
    located::{Files, Place, Shown},
    text::without_controls,
};

/// Errors and warnings about the files of a configuration; contains no secret.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(crate) files: Arc<Files>,
    diagnostics: Vec<Diagnostic>,
    omitted_errors: usize,
    omitted_warnings: usize,
}

/// One error or warning.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) is_error: bool,
    pub(crate) title: String,
    /// The title is about the first one.
    pub(crate) labels: Vec<Label>,
    /// The fix.
    pub(crate) help: Vec<String>,
}

/// Something to point at.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) target: Target,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A span of a file.
    Span(Place),
    /// A file as a whole.
    File(PathBuf),
}

/// Reports show no more errors than this, and no more warnings.
pub const MAX_SHOWN: usize = 20;
/// Longer lines are cut on both sides of a label.
const LONGEST_LINE: usize = 1000;
/// Bytes shown on either side of a label in a long line.
const AROUND: usize = 60;
/// Most bytes of a long line that one label covers.
const LONGEST_SPAN: usize = 100;

impl Report {
    /// Returns whether there is neither an error nor a warning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Returns whether there is an error.
    #[must_use]
    pub(crate) fn has_errors(&self) -> bool {
        self.first_error().is_some()
    }

    /// The title of the first error.
    pub(crate) fn first_error(&self) -> Option<&str> {
        let mut errors = self.diagnostics.iter().filter(|it| it.is_error);
        errors.next().map(|error| error.title.as_str())
    }

    /// All that there is to say, over several lines; with terminal colours if `colour`.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = match colour {
            true => Renderer::styled(),
            false => Renderer::plain(),
        };
        let shown = self.diagnostics.iter();
        let shown = shown.map(|it| renderer.render(&[it.group(&self.files)]));
        let mut blocks: Vec<String> = shown.collect();
        for (omitted, what) in [
            (self.omitted_errors, "error"),
            (self.omitted_warnings, "warning"),
        ] {
            match omitted {
                0 => {}
                1 => blocks.push(format!("1 more {what} is not shown")),
                _ => blocks.push(format!("{omitted} more {what}s are not shown")),
            }
        }
        blocks.join("\n\n")
    }

    /// A report of one error about a value that was read from a file.
    #[must_use]
    pub fn about(files: &Arc<Files>, at: Place, title: &str, label: &str) -> Self {
        let mut report = Self {
            files: Arc::clone(files),
            ..Self::default()
        };
        report.push(Diagnostic::error(title, at, label));
        report
    }

    /// Returns whether another error would be shown.
    pub(crate) fn shows_more_errors(&self) -> bool {
        self.omitted_errors == 0
    }

    /// Adds what another report says about other files.
    pub(crate) fn absorb(&mut self, other: Self) {
        let shift = self.files.0.len();
        let files = self.files.0.iter().chain(&other.files.0);
        self.files = Arc::new(Files(files.cloned().collect()));
        for mut diagnostic in other.diagnostics {
            for label in &mut diagnostic.labels {
                if let Target::Span(at) = &mut label.target {
                    *at = at.shifted(shift);
                }
            }
            self.push(diagnostic);
        }
        self.omitted_errors += other.omitted_errors;
        self.omitted_warnings += other.omitted_warnings;
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let of_its_kind = self.diagnostics.iter();
        let of_its_kind = of_its_kind.filter(|it| it.is_error == diagnostic.is_error);
        if of_its_kind.count() < MAX_SHOWN {
            self.diagnostics.push(diagnostic);
        } else if diagnostic.is_error {
            self.omitted_errors += 1;
        } else {
            self.omitted_warnings += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

impl Diagnostic {
    pub(crate) fn error(title: impl Into<String>, at: Place, label: impl Into<String>) -> Self {
        Self::new(true, title.into(), Target::Span(at), label.into())
    }

    pub(crate) fn warning(title: impl Into<String>, at: Place, label: impl Into<String>) -> Self {
        Self::new(false, title.into(), Target::Span(at), label.into())
    }

    /// An error about a file that has no text, or about all of it.
    pub(crate) fn file_error(title: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::new(true, title.into(), Target::File(path.into()), String::new())
    }

    /// A warning about a file as a whole.
    pub(crate) fn file_warning(title: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::new(
            false,
            title.into(),
            Target::File(path.into()),
            String::new(),
        )
    }

    fn new(is_error: bool, title: String, target: Target, text: String) -> Self {
        let labels = vec![Label { target, text }];
        let help = Vec::new();
        Self {
            is_error,
            title,
            labels,
            help,
        }
    }

    /// Points at a second place.
    pub(crate) fn also(mut self, at: Place, label: impl Into<String>) -> Self {
        let target = Target::Span(at);
        let text = label.into();
        self.labels.push(Label { target, text });
        self
    }

    /// Adds a way to mend it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    fn group<'a>(&'a self, files: &'a Files) -> Group<'a> {
        let level = match self.is_error {
            true => Level::ERROR,
            false => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.title.as_str()));
        for (index, label) in self.labels.iter().enumerate() {
            let kind = match index {
                0 => AnnotationKind::Primary,
                _ => AnnotationKind::Context,
            };
            group = label.add_to(group, files, kind);
        }
        let help = self.help.iter().map(|help| Level::HELP.message(help));
        group.elements(help)
    }
}

impl Label {
    fn add_to<'a>(&'a self, group: Group<'a>, files: &'a Files, kind: AnnotationKind) -> Group<'a> {
        let at = match &self.target {
            Target::Span(at) => *at,
            Target::File(path) => return group.element(Origin::path(shown(path))),
        };
        let Some(file) = files.0.get(at.file as usize) else {
            return group;
        };
        let excerpt = Excerpt::new(file, at.range());
        let path = shown(&file.path);
        let text = (!self.text.is_empty()).then_some(self.text.as_str());
        let annotation = kind.span(excerpt.span).label(text);
        let snippet = Snippet::source(excerpt.text)
            .line_start(excerpt.line)
            .annotation(annotation);
        match excerpt.column {
            None => group.element(snippet.path(path)),
            Some(column) => {
                let origin = Origin::path(path).line(excerpt.line).char_column(column);
                group.element(origin).element(snippet)
            }
        }
    }
}

/// Returns a path as a terminal may show it: whoever makes a file chooses its name.
fn shown(path: &Path) -> String {
    without_controls(&path.to_string_lossy())
}

/// The line that a label points into.
struct Excerpt<'a> {
    line: usize,
    /// The column of the label, from 1, if the line is too long to be shown whole.
    column: Option<usize>,
    text: &'a str,
    /// Within `text`.
    span: Range<usize>,
}

impl<'a> Excerpt<'a> {
    fn new(file: &'a Shown, range: Range<usize>) -> Self {
        let (line, start) = file.line_of(range.start);
        let rest = file.text.get(start..).unwrap_or_default();
        let text = rest.split('\n').next().unwrap_or_default();
        let text = text.strip_suffix('\r').unwrap_or(text);
        let from = (range.start - start).min(text.len());
        let to = (range.end - start).clamp(from, text.len());
        if text.len() <= LONGEST_LINE {
            return Self {
                line,
                column: None,
                text,
                span: from..to,
            };
        }
        let to = text
            .floor_char_boundary(to.min(from + LONGEST_SPAN))
            .max(from);
        let first = text.floor_char_boundary(from.saturating_sub(AROUND));
        let last = text.ceil_char_boundary((to + AROUND).min(text.len()));
        Self {
            line,
            column: Some(text[..from].chars().count() + 1),
            text: &text[first..last],
            span: from - first..to - first,
        }
    }
}

#[cfg(test)]
mod tests;
