//! `report.md`: all findings, read together.

use std::collections::BTreeMap;

use super::{
    flame_graph, groups, record,
    stacks::{Stacks, UNKNOWN},
    stat::{self, Stat, ratio},
    syscalls::{self, Call, Syscalls},
};

pub(super) const FILE: &str = "report.md";
/// How many functions are listed.
const HOTTEST: usize = 20;
/// How many system calls are listed.
const CALLS: usize = 12;

/// Everything there is to report.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    /// The subject of the profile, for people.
    pub(super) what: &'a str,
    pub(super) stacks: &'a Stacks,
    /// The profile to compare with.
    pub(super) before: Option<&'a Stacks>,
    /// A remark on missing parts.
    pub(super) note: Option<String>,
    pub(super) stat: Option<&'a Stat>,
    pub(super) syscalls: Option<&'a Syscalls>,
}

/// The whole page, in Markdown.
pub(super) fn text(findings: &Findings<'_>) -> String {
    let stacks = findings.stacks;
    let mut sections = vec![
        head(findings),
        by_group(findings),
        by_thread(stacks),
        hottest(stacks),
    ];
    sections.extend(findings.syscalls.map(system_calls));
    sections.extend(findings.stat.map(counters));
    sections.join("\n")
}

fn head(findings: &Findings<'_>) -> String {
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

fn by_group(findings: &Findings<'_>) -> String {
    let mut text =
        "## Where the CPU time goes\n\nBold is more than usual for TCP at full speed. Small \
                    packets move time from AEAD to the calls.\n\n"
            .to_owned();
    let total = findings.stacks.total();
    let before = findings
        .before
        .map(|before| (groups::counts(before), before.total()));
    let (heading, rule) = match before {
        Some(_) => (" before |", "--:|"),
        None => ("", ""),
    };
    text += &format!(
        "| group | share |{heading} what it means | what to try |\n|---|--:|{rule}---|---|\n"
    );
    for (place, (group, count)) in groups::counts(findings.stacks).into_iter().enumerate() {
        let is_unusual = count as f64 > group.usual * total as f64;
        let bold = if is_unusual { "**" } else { "" };
        let share = percent(count, total);
        let before = before.as_ref();
        let before = before.map(|(counts, total)| percent(counts[place].1, *total) + " | ");
        text += &format!(
            "| {bold}{}{bold} | {bold}{share}{bold} | {}{} | {} |\n",
            group.name,
            before.unwrap_or_default(),
            group.means,
            group.attempt
        );
    }
    text
}

fn by_thread(stacks: &Stacks) -> String {
    let mut threads: BTreeMap<&str, u64> = BTreeMap::new();
    for (thread, _, count) in stacks.iter() {
        *threads.entry(thread).or_default() += count;
    }
    let mut text = "## Threads\n\n| thread | share | what it does |\n|---|--:|---|\n".to_owned();
    for (thread, count) in sorted(threads) {
        let stage = match thread {
            "tun-reader" => "reads the TUN, sums segments before they are cut",
            "tunnel" => "the event loop: encrypts and sends, receives and decrypts",
            "tun-writer" => "coalesces, and writes the TUN",
            _ => "control: configuration, signals",
        };
        text += &format!(
            "| `{thread}` | {} | {stage} |\n",
            percent(count, stacks.total())
        );
    }
    text
}

fn hottest(stacks: &Stacks) -> String {
    let mut functions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, names, count) in stacks.iter() {
        let innermost = names.last().copied().unwrap_or(UNKNOWN);
        *functions
            .entry((innermost, groups::of(&names).name))
            .or_default() += count;
    }
    let mut text = "## Hottest functions\n\nBy the time in themselves, without their callees.\n\n\
                    | function | group | share |\n|---|---|--:|\n"
        .to_owned();
    for ((function, group), count) in sorted(functions).into_iter().take(HOTTEST) {
        text += &format!(
            "| `{function}` | {group} | {} |\n",
            percent(count, stacks.total())
        );
    }
    text
}

fn system_calls(syscalls: &Syscalls) -> String {
    let traffic = match syscalls.gigabytes {
        Some(gigabytes) => format!("{gigabytes:.2} GB went through the tunnel meanwhile"),
        None => "nothing went through the tunnel meanwhile, as far as is known".to_owned(),
    };
    let mut text = format!(
        "## System calls\n\nFrom a run under `strace`, which slows the daemons down: {traffic}. \
         {} calls that do not wait, **{} calls/GB**. All are in `{}`.\n\n\
         | call | count | errors | calls/GB |\n|---|--:|--:|--:|\n",
        syscalls.total.count,
        optional(syscalls.total.calls_per_gb, 0),
        syscalls::FILE,
    );
    let row = |call: &Call| {
        let Call {
            name,
            count,
            errors,
            calls_per_gb,
            ..
        } = call;
        format!(
            "| `{name}` | {count} | {errors} | {} |\n",
            optional(*calls_per_gb, 0)
        )
    };
    text.extend(syscalls.calls.iter().take(CALLS).map(row));
    text += "| *waiting:* | | | |\n";
    text.extend(syscalls.waits.iter().take(CALLS).map(row));
    text + "\nMany calls a gigabyte mean small batches: compare `convoy stats`. Waiting is not a \
            cost, but many waits a gigabyte mean that threads wake each other for little.\n"
}

fn counters(stat: &Stat) -> String {
    let share = |part, whole| ratio(part, whole).map(|share| share * 100.0);
    let a_second = |count| ratio(count, stat.cpu_seconds);
    let memory = "below 1: it waits for memory; encryption alone has 2 to 3";
    let cache = "over 20: batches do not stay in the cache between stages";
    let mixed = "over 2: traffic is mixed, or small";
    let alternate = "over 20,000: threads alternate for single packets";
    let migrate = "over 100: try `taskset`, or fewer other programs";
    let cache_misses = share(stat.cache_misses, stat.cache_references);
    let branch_misses = share(stat.branch_misses, stat.branches);
    let rows = [
        ("CPU seconds", stat.cpu_seconds, 2, "of all threads"),
        ("instructions a cycle", stat.ipc, 2, memory),
        ("cache misses, %", cache_misses, 1, cache),
        ("branch misses, %", branch_misses, 1, mixed),
        (
            "context switches a CPU second",
            a_second(stat.context_switches),
            0,
            alternate,
        ),
        (
            "migrations a CPU second",
            a_second(stat.migrations),
            0,
            migrate,
        ),
    ];
    let mut text = format!(
        "## Counters\n\n– marks a counter that this machine does not have (`{}`).\n\n| | | |\n|---|--:|---|\n",
        stat::FILE
    );
    for (name, value, decimals, meaning) in rows {
        text += &format!("| {name} | {} | {meaning} |\n", optional(value, decimals));
    }
    text
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

fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(functions: &[&str]) -> Stacks {
        let sample =
            |function: &&str| format!("tunnel 1/2 1.5: 1 cycles: \n\t1 {function} (a)\n\n");
        let text: String = functions.iter().map(sample).collect();
        Stacks::of(text.as_bytes()).unwrap()
    }

    fn findings(stacks: &Stacks) -> Findings<'_> {
        Findings {
            what: "a test",
            stacks,
            before: None,
            note: None,
            stat: None,
            syscalls: None,
        }
    }

    #[test]
    fn a_page_has_all_findings() {
        let stacks = stacks(&[
            "chacha20_poly1305_seal",
            "chacha20_poly1305_seal",
            "udp_sendmsg",
        ]);
        let stat = Stat {
            cpu_seconds: Some(2.0),
            context_switches: Some(500.0),
            ..Stat::default()
        };
        let syscalls = Syscalls {
            gigabytes: Some(0.5),
            total: syscalls::Total {
                calls_per_gb: Some(20.0),
                ..syscalls::Total::default()
            },
            calls: vec![Call::counted(("sendmsg", 10))],
            waits: vec![Call::counted(("futex", 10))],
        };
        let page = text(&Findings {
            stat: Some(&stat),
            syscalls: Some(&syscalls),
            note: Some("The kernel's side is missing".to_owned()),
            ..findings(&stacks)
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
            "**20 calls/GB**",
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
        let (before, now) = (stacks(&["memcpy", "odd"]), stacks(&["odd"]));
        let page = text(&Findings {
            before: Some(&before),
            ..findings(&now)
        });
        assert!(page.contains("| copies | 0.0 % | 50.0 % |"), "{page}");
        assert!(page.contains("flamegraph-diff.svg"), "{page}");
        for part in ["## System calls", "## Counters"] {
            assert!(!page.contains(part), "{page}");
        }
    }
}
