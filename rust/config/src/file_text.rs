//! The text of a file, and what is wrong with a file as a whole.

use std::path::Path;

use zeroize::Zeroizing;

use crate::{
    open::OpenError,
    report::{Diagnostic, Report},
};

/// Makes a report of one problem.
pub(crate) fn file_report(diagnostic: Diagnostic) -> Report {
    let mut report = Report::default();
    report.push(diagnostic);
    report
}

/// Says why a file cannot be read.
pub(crate) fn cannot_read(path: &Path, error: &OpenError) -> Diagnostic {
    let diagnostic = Diagnostic::file_error(format!("cannot read the file: {error}"), path);
    match error {
        OpenError::Denied => diagnostic.help("run as root, or as the file's owner"),
        _ => diagnostic,
    }
}

/// Where a file is not plain text: offset, title and help.
pub(crate) type Flaw = (usize, String, &'static str);

/// The bytes as text; each byte that is not part of it is replaced by `?`.
pub(crate) fn text_of(bytes: &[u8]) -> (Zeroizing<String>, Option<Flaw>) {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len()));
    let mut flaw = None;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if let (Some(byte), None) = (chunk.invalid().first(), &flaw) {
            let title = format!("invalid UTF-8: byte 0x{byte:02x}");
            flaw = Some((text.len(), title, "save the file as UTF-8"));
        }
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    if is_utf16(bytes) {
        let title = "the file is in UTF-16".to_owned();
        let help = "save the file as UTF-8, or convert it: `iconv -f UTF-16 -t UTF-8`";
        return (text, Some((0, title, help)));
    }
    let null = text.find('\0').map(|at| {
        let title = "the file contains a NUL byte".to_owned();
        (at, title, "the file is binary or damaged")
    });
    (text, flaw.into_iter().chain(null).min_by_key(|flaw| flaw.0))
}

/// Shorter files are not taken for UTF-16 without its mark.
const SHORTEST: usize = 16;

/// Returns whether bytes are UTF-16 by their mark or, without one, since every other byte of ASCII is 0 there.
fn is_utf16(bytes: &[u8]) -> bool {
    let has_mark = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    let zeros = |parity: usize| {
        let places = bytes.iter().skip(parity).step_by(2);
        places.filter(|byte| **byte == 0).count()
    };
    let [even, odd] = [zeros(0), zeros(1)];
    // A third of the characters, at least: others are no ASCII, or the file is damaged.
    has_mark || bytes.len() >= SHORTEST && even.min(odd) == 0 && even.max(odd) * 6 >= bytes.len()
}

/// Returns whether group or others may read a file, and may reach it through its directory.
pub(crate) fn is_readable_by_others(file: u32, directory: u32) -> bool {
    [0o070, 0o007]
        .iter()
        .any(|who| file & 0o044 & who != 0 && directory & 0o011 & who != 0)
}
