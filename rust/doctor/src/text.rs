//! The text that `convoy doctor` prints for people.

use anstyle::{AnsiColor, Style};

use super::finding::{Diagnosis, Finding, Severity};
use convoy_process::{paragraph::fill, printable};

/// Where sentences begin.
const INDENT: usize = 9;

/// Writes one paragraph for each finding, the summary last; with terminal colours, which a stream may strip.
#[must_use]
pub fn render(diagnosis: &Diagnosis) -> String {
    let mut text: String = diagnosis.findings.iter().map(paragraph).collect();
    text.push('\n');
    text.push_str(&summary(&diagnosis.findings));
    text.push('\n');
    text
}

fn paragraph(finding: &Finding) -> String {
    let subject = match &finding.peer {
        Some(peer) => format!("{}, {peer}", finding.id),
        None => finding.id.clone(),
    };
    let (style, word) = (style(finding.severity), finding.severity.word());
    let mut text = format!("{style}{word:<INDENT$}{style:#}");
    let indent = " ".repeat(INDENT);
    let what = printable(&format!("{subject}: {}", finding.what));
    let what = fill(&what, &indent, &indent);
    text += what.trim_start();
    text.push('\n');
    if let Some(fix) = &finding.fix {
        let dimmed = Style::new().dimmed();
        text += &format!("{:INDENT$}{dimmed}→{dimmed:#} ", "");
        let hanging = " ".repeat(INDENT + 2);
        text += fill(&printable(fix), &hanging, &hanging).trim_start();
        text.push('\n');
    }
    text
}

fn summary(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    let counted = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Note, "note"),
    ];
    let parts = counted.map(|(severity, word)| match count(severity) {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    });
    format!("{}.", parts.join(", "))
}

fn style(severity: Severity) -> Style {
    let colour = match severity {
        Severity::Ok => AnsiColor::Green,
        Severity::Note => AnsiColor::Cyan,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Error => AnsiColor::Red,
    };
    colour.on_default().bold()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(findings: Vec<Finding>) -> String {
        let text = render(&Diagnosis::new(None, findings));
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn each_finding_is_a_line_with_its_fix_below() {
        let text = plain(vec![
            Finding::ok("kernel", "Linux 6.18.44 has no bug that is known here."),
            Finding::error("handshake", "It does not answer.", "Check its key.").about("Office"),
        ]);
        assert_eq!(
            text,
            "ok       kernel: Linux 6.18.44 has no bug that is known here.\n\
             error    handshake, Office: It does not answer.\n         \
             → Check its key.\n\n\
             1 error, 0 warnings, 0 notes.\n"
        );
    }

    #[test]
    fn words_of_others_do_not_control_the_terminal() {
        let finding = Finding::error("dns", "It says \u{1b}]0;x\u{7}.", "Ask \u{9b}m.");
        let text = render(&Diagnosis::new(None, vec![finding.about("a\u{202e}b")]));
        assert!(text.contains("dns, a?b: It says ?]0;x?."), "{text}");
        assert!(text.contains("Ask ?m."), "{text}");
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_and_no_command_is_broken() {
        let command = "`sysctl -w net.core.rmem_max=7340032 net.core.wmem_max=7340032`";
        let what = "word ".repeat(60);
        let fix = format!("Some words that precede it run {command}, and then {what}");
        let text = plain(vec![Finding::warning("udp-buffers", what, fix)]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.lines().any(|line| line.contains(command)), "{text}");
        assert!(
            text.lines()
                .skip(1)
                .take(3)
                .all(|line| line.starts_with("         ")),
            "{text}"
        );
    }
}
