//! `report.md`: all findings, read together.

use std::collections::BTreeMap;

use super::{
    Findings, flame_graph,
    groups::{self, Group},
    record,
    stacks::{Stacks, UNKNOWN},
    stat::{self, Stat},
    syscalls::{self, Call, Syscalls},
};
use crate::table::{figure, markdown};

pub(super) const FILE: &str = "report.md";
/// How many functions are listed.
const HOTTEST: usize = 20;
/// How many system calls are listed.
const CALLS: usize = 12;

/// The whole page, in Markdown.
pub(super) fn text(findings: &Findings) -> String {
    let stacks = &findings.stacks;
    let mut sections = vec![
        head(findings),
        by_group(findings),
        by_thread(stacks),
        hottest(stacks),
    ];
    sections.extend(findings.syscalls.as_ref().map(system_calls));
    sections.extend(findings.stat.as_ref().map(counters));
    sections.join("\n")
}

fn head(findings: &Findings) -> String {
    let Findings { what, stacks, .. } = findings;
    let mut text = format!(
        "# Profile of {what}\n\n{} samples of `{}`. Load `{}` at profiler.firefox.com; open \
         `{}` in a browser, where a click zooms and Ctrl-F searches.\n",
        stacks.total(),
        stacks.event(),
        record::TEXT,
        flame_graph::FILE,
    );
    if findings.before.is_some() {
        let file = flame_graph::DIFFERENCE_FILE;
        text += &format!("`{file}` is red where the share has grown, blue where it has shrunk.\n");
    }
    text.extend(findings.note.iter().map(|note| format!("\n**{note}**\n")));
    text
}

fn by_group(findings: &Findings) -> String {
    let total = findings.stacks.total();
    let before = findings.before.as_ref().map(|before| {
        let counts = groups::counts(before).into_iter();
        let shares = counts.map(|(_, count)| percent(count, before.total()));
        shares.collect::<Vec<_>>()
    });
    let row = |(place, (group, count)): (usize, (&Group, u64))| {
        let is_unusual = count as f64 > group.usual * total as f64;
        let bold = if is_unusual { "**" } else { "" };
        let share = percent(count, total);
        let mut row = vec![
            format!("{bold}{}{bold}", group.name),
            format!("{bold}{share}{bold}"),
        ];
        row.extend(before.as_ref().map(|shares| shares[place].clone()));
        row.extend([group.means, group.attempt].map(str::to_owned));
        row
    };
    let head = match before {
        Some(_) => "group,share,before,what it means,what to try",
        None => "group,share,what it means,what to try",
    };
    let rows = groups::counts(&findings.stacks).into_iter().enumerate();
    "## Where the CPU time goes\n\nBold is more than usual for TCP at full speed. Small packets move time \
     from AEAD to the calls.\n\n"
        .to_owned()
        + &markdown(head, rows.map(row))
}

fn by_thread(stacks: &Stacks) -> String {
    let mut threads: BTreeMap<&str, u64> = BTreeMap::new();
    for (thread, _, count) in stacks.iter() {
        *threads.entry(thread).or_default() += count;
    }
    let rows = sorted(threads).into_iter().map(|(thread, count)| {
        let stage = match thread {
            "tun-reader" => "reads the TUN, sums segments before they are cut",
            "tunnel" => "the event loop: encrypts and sends, receives and decrypts",
            "tun-writer" => "coalesces, and writes the TUN",
            _ => "control: configuration, signals",
        };
        let share = percent(count, stacks.total());
        vec![format!("`{thread}`"), share, stage.to_owned()]
    });
    "## Threads\n\n".to_owned() + &markdown("thread,share,what it does", rows)
}

fn hottest(stacks: &Stacks) -> String {
    let mut functions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, names, count) in stacks.iter() {
        let innermost = names.last().copied().unwrap_or(UNKNOWN);
        let group = groups::of(&names).name;
        *functions.entry((innermost, group)).or_default() += count;
    }
    let hottest = sorted(functions).into_iter().take(HOTTEST);
    let rows = hottest.map(|((function, group), count)| {
        let share = percent(count, stacks.total());
        vec![format!("`{function}`"), group.to_owned(), share]
    });
    "## Hottest functions\n\nBy the time in themselves, without their callees.\n\n".to_owned()
        + &markdown("function,group,share", rows)
}

fn system_calls(syscalls: &Syscalls) -> String {
    let traffic = match syscalls.gigabytes {
        Some(gigabytes) => format!("{gigabytes:.2} GB went through the tunnel meanwhile"),
        None => "nothing went through the tunnel meanwhile, as far as is known".to_owned(),
    };
    let row = |call: &Call| {
        vec![
            format!("`{}`", call.name),
            call.count.to_string(),
            call.errors.to_string(),
            figure(call.calls_per_gb, 0),
        ]
    };
    let calls = syscalls.calls.iter().take(CALLS).map(row);
    let waits = syscalls.waits.iter().take(CALLS).map(row);
    let rows = calls.chain([vec!["*waiting:*".to_owned()]]).chain(waits);
    format!(
        "## System calls\n\nFrom a run under `strace`, which slows the daemons down: {traffic}. \
         {} calls that do not wait, **{} calls/GB**. All are in `{}`.\n\n{}\n\
         Many calls a gigabyte mean small batches: compare `convoy stats`. Waiting is not a \
         cost, but many waits a gigabyte mean that threads wake each other for little.\n",
        syscalls.total.count,
        figure(syscalls.total.calls_per_gb, 0),
        syscalls::FILE,
        markdown("call,count,errors,calls/GB", rows)
    )
}

fn counters(stat: &Stat) -> String {
    let percent = |part, whole| stat.ratio(part, whole).map(|share| share * 100.0);
    let a_second = |count| stat.ratio(count, "cpu_seconds");
    let rows = [
        (
            "CPU seconds",
            figure(stat.of("cpu_seconds"), 2),
            "of all threads",
        ),
        (
            "instructions a cycle",
            figure(stat.of("ipc"), 2),
            "below 1: it waits for memory; encryption alone has 2 to 3",
        ),
        (
            "cache misses, %",
            figure(percent("cache_misses", "cache_references"), 1),
            "over 20: batches do not stay in the cache between stages",
        ),
        (
            "branch misses, %",
            figure(percent("branch_misses", "branches"), 1),
            "over 2: traffic is mixed, or small",
        ),
        (
            "context switches a CPU second",
            figure(a_second("context_switches"), 0),
            "over 20,000: threads alternate for single packets",
        ),
        (
            "migrations a CPU second",
            figure(a_second("migrations"), 0),
            "over 100: try `taskset`, or fewer other programs",
        ),
    ];
    let rows = rows.map(|(name, figure, means)| vec![name.to_owned(), figure, means.to_owned()]);
    format!(
        "## Counters\n\n– marks a counter that this machine does not have (`{}`).\n\n{}",
        stat::FILE,
        markdown("counter,value,what it means", rows)
    )
}

/// The greatest count first.
fn sorted<K: Ord>(counts: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn percent(count: u64, total: u64) -> String {
    format!("{:.1} %", count as f64 / total.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page, with one space where it has several.
    fn page(findings: &Findings) -> String {
        let text = text(findings);
        let lines = text.lines().map(|line| line.split_whitespace());
        let lines = lines.map(|words| words.collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_page_has_all_findings() {
        let page = page(&Findings {
            what: "a test".to_owned(),
            stacks: Stacks::of_samples(&[
                (1, "tunnel;chacha20_poly1305_seal"),
                (1, "tunnel;chacha20_poly1305_seal"),
                (1, "tunnel;udp_sendmsg"),
            ]),
            stat: Some(Stat::of_counts([
                ("cpu_seconds", 2.0),
                ("context_switches", 500.0),
            ])),
            syscalls: Some(Syscalls {
                calls: vec![Call::counted(("sendmsg", 10))],
                waits: vec![Call::counted(("futex", 10))],
                ..Syscalls::default()
            }),
            note: Some("The kernel's side is missing".to_owned()),
            ..Findings::default()
        });
        for part in [
            "# Profile of a test",
            "3 samples of `cycles`",
            "**The kernel's side is missing**",
            "| AEAD | 66.7 % |",
            "| **UDP send** | **33.3 %** |",
            "| TUN read | 0.0 % |",
            "| `tunnel` | 100.0 % | the event loop",
            "| `chacha20_poly1305_seal` | AEAD | 66.7 % |",
            "**– calls/GB**",
            "| `sendmsg` | 10 | 1 | 20 |",
            "| *waiting:* | | | |\n| `futex`",
            "| instructions a cycle | – |",
            "| context switches a CPU second | 250 |",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn a_comparison_shows_both_shares_and_missing_sections_are_left_out() {
        let before = Stacks::of_samples(&[(1, "tunnel;memcpy"), (1, "tunnel;odd")]);
        let page = page(&Findings {
            stacks: Stacks::of_samples(&[(1, "tunnel;odd")]),
            before: Some(before),
            ..Findings::default()
        });
        assert!(page.contains("| copies | 0.0 % | 50.0 % |"), "{page}");
        assert!(page.contains("flamegraph-diff.svg"), "{page}");
        assert!(!page.contains("## System calls"), "{page}");
        assert!(!page.contains("## Counters"), "{page}");
    }
}
