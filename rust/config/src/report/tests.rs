use super::*;

#[test]
fn a_label_is_underlined_and_the_help_follows() {
    let files = files("[Interface]\nMTU = many\n");
    let mut report = Report::about(&files, Place::new(0, 18..22), "invalid value", "a number");
    report.diagnostics[0] = report.diagnostics[0].clone().help("write 1420");
    let expected = "\
error: invalid value
 --> wg0.conf:2:7
  |
2 | MTU = many
  |       ^^^^ a number
  |
  = help: write 1420";
    assert_eq!(report.to_string(), expected);
    assert!(report.render(true).contains("\u{1b}["));
}

#[test]
fn a_long_line_is_cut_and_its_column_is_true() {
    let text = format!("{}X{}", "é,".repeat(5_000), ",b".repeat(5_000));
    let report = Report::about(
        &files(&text),
        Place::new(0, 15_000..15_001),
        "wrong",
        "here",
    );
    let shown = report.to_string();
    assert!(shown.contains("wg0.conf:1:10001"), "{shown}");
    assert!(shown.len() < 500, "{shown}");
    assert!(shown.contains('X') && shown.contains('^'), "{shown}");
}

#[test]
fn omitted_diagnostics_are_counted() {
    let files = files("a\n");
    let mut report = Report::about(&files, Place::new(0, 0..1), "wrong", "");
    for _ in 0..100 {
        report.push(Diagnostic::error("wrong", Place::new(0, 0..1), ""));
    }
    report.push(Diagnostic::file_warning("readable", "wg0.conf"));
    let shown = report.to_string();
    assert_eq!(shown.matches("error: wrong").count(), MAX_SHOWN);
    assert!(shown.contains("warning: readable"), "{shown}");
    assert!(shown.ends_with("81 more errors are not shown"), "{shown}");
}

#[test]
fn a_place_at_the_end_or_behind_it_is_no_panic() {
    let files = files("\u{feff}MTU =");
    for range in [0..0, 3..6, 8..8, 8..20, 90..91] {
        Report::about(&files, Place::new(0, range), "wrong", "here").to_string();
    }
    Report::about(&files, Place::new(7, 0..1), "wrong", "here").to_string();
}

#[test]
fn the_name_of_a_file_does_not_control_the_terminal() {
    let path = std::path::PathBuf::from("wg0.d/\u{1b}]0;owned\u{7}\u{202e}\n.conf");
    let text = "MTU = 1\n".to_owned();
    let shown = Shown {
        path: path.clone(),
        text,
    };
    let files = Arc::new(Files(vec![shown]));
    let mut report = Report::about(&files, Place::new(0, 0..3), "wrong", "here");
    report.push(Diagnostic::file_error("unreadable", path));
    let shown = report.to_string();
    assert!(
        shown.contains("--> wg0.d/?]0;owned???.conf:1:1\n"),
        "{shown}"
    );
    assert!(shown.ends_with("--> wg0.d/?]0;owned???.conf"), "{shown}");
}

fn files(text: &str) -> Arc<Files> {
    let path = "wg0.conf".into();
    let text = text.to_owned();
    Arc::new(Files(vec![Shown { path, text }]))
}
