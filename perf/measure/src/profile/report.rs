//! `report.md`: all findings, interpreted.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::groups::{self, GROUPS, Group};
use super::stacks::{Stacks, UNKNOWN};
use super::stat::{self, Stat};
use super::syscalls::{self, Call, Syscalls};
use super::{flame_graph, record};
use crate::table::{figure, markdown};

pub(super) const FILE: &str = "report.md";
/// Number of functions listed.
const HOTTEST: usize = 20;
/// Number of system calls listed.
const CALLS: usize = 12;
const IPC: &str = "below 1: waits for memory; encryption alone reaches 2 to 3";
const CACHE_MISSES: &str = "over 20: batches do not stay in the cache between stages";
const BRANCH_MISSES: &str = "over 2: mixed traffic, or small packets";
const SWITCHES: &str = "over 20,000: threads hand over single packets";
const MIGRATIONS: &str = "over 100: try `taskset`, or fewer other programs";

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
    let shares = groups::shares(&findings.stacks);
    let before = findings.before.as_ref().map(groups::shares);
    let row = |group: &Group| {
        let share = shares[group.name];
        let bold = if share > group.usual { "**" } else { "" };
        let row = [group.name, &percent(share)].map(|cell| format!("{bold}{cell}{bold}"));
        let before = before.as_ref().map(|before| percent(before[group.name]));
        let advice = [group.means, group.attempt].map(str::to_owned);
        row.into_iter().chain(before).chain(advice).collect()
    };
    let head = match before {
        Some(_) => "group,share,before,what it means,what to try",
        None => "group,share,what it means,what to try",
    };
    format!(
        "## Where the CPU time goes\n\nBold: more than usual for TCP at full speed. Small packets \
         shift time from AEAD to the system calls.\n\n{}",
        markdown(head, GROUPS.iter().map(row))
    )
}

fn by_thread(stacks: &Stacks) -> String {
    let threads = stacks.shares(|thread, _| Some(thread));
    let rows = sorted(threads).into_iter().map(|(thread, share)| {
        let stage = match thread {
            "tun-reader" => "reads the TUN, sums the segments of super-packets",
            "tunnel" => "the event loop: encrypts and sends, receives and decrypts",
            "tun-writer" => "coalesces packets and writes the TUN",
            "tokio-rt-worker" => "relays connections and datagrams of sockets",
            _ => "control: configuration, signals",
        };
        vec![format!("`{thread}`"), percent(share), stage.to_owned()]
    });
    "## Threads\n\n".to_owned() + &markdown("thread,share,what it does", rows)
}

fn hottest(stacks: &Stacks) -> String {
    let functions = stacks.shares(|_, functions| {
        let innermost = functions.last().copied().unwrap_or(UNKNOWN);
        Some((innermost, groups::of(functions).name))
    });
    let hottest = sorted(functions).into_iter().take(HOTTEST);
    let rows = hottest.map(|((function, group), share)| {
        vec![format!("`{function}`"), group.to_owned(), percent(share)]
    });
    "## Hottest functions\n\nSelf time, without callees.\n\n".to_owned()
        + &markdown("function,group,share", rows)
}

fn system_calls(syscalls: &Syscalls) -> String {
    let traffic = match syscalls.gigabytes {
        Some(gigabytes) => format!("{gigabytes:.2} GB passed through the tunnel meanwhile"),
        None => "no traffic through the tunnel was counted".to_owned(),
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
         Many calls per gigabyte mean small batches: compare `convoy stats`. Waiting is not a \
         cost, but many waits per gigabyte mean that threads wake each other for little work.\n",
        syscalls.total.count,
        figure(syscalls.total.calls_per_gb, 0),
        syscalls::FILE,
        markdown("call,count,errors,calls/GB", rows)
    )
}

fn counters(stat: &Stat) -> String {
    let percent = |part, whole| stat.ratio(part, whole).map(|share| share * 100.0);
    let a_second = |count| stat.ratio(count, "cpu_seconds");
    let cache_misses = percent("cache_misses", "cache_references");
    let branch_misses = percent("branch_misses", "branches");
    let (switches, migrations) = (a_second("context_switches"), a_second("migrations"));
    let row = |name: &str, value, decimals, means: &str| {
        vec![name.to_owned(), figure(value, decimals), means.to_owned()]
    };
    let rows = [
        row("CPU seconds", stat.of("cpu_seconds"), 2, "of all threads"),
        row("instructions per cycle", stat.of("ipc"), 2, IPC),
        row("cache misses, %", cache_misses, 1, CACHE_MISSES),
        row("branch misses, %", branch_misses, 1, BRANCH_MISSES),
        row("context switches per CPU second", switches, 0, SWITCHES),
        row("migrations per CPU second", migrations, 0, MIGRATIONS),
    ];
    format!(
        "## Counters\n\n– marks a counter that this machine does not have (`{}`).\n\n{}",
        stat::FILE,
        markdown("counter,value,what it means", rows)
    )
}

/// The greatest share first.
fn sorted<K: Ord>(shares: BTreeMap<K, f64>) -> Vec<(K, f64)> {
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    shares
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_all_findings_and_leaves_out_sections_without_any() {
        let seal = (1, "tunnel;chacha20_poly1305_seal");
        let mut findings = Findings {
            what: "a test".to_owned(),
            stacks: Stacks::of_samples(&[seal, seal, (1, "tunnel;udp_sendmsg")]),
            ..Findings::default()
        };
        let few = page(&findings);
        assert!(!few.contains("## System calls") && !few.contains("## Counters"));
        let counts = [("cpu_seconds", 2.0), ("context_switches", 500.0)];
        findings.stat = Some(Stat::of_counts(counts));
        findings.syscalls = Some(Syscalls {
            calls: vec![Call::counted(("sendmsg", 10))],
            waits: vec![Call::counted(("futex", 10))],
            ..Syscalls::default()
        });
        findings.note = Some("The kernel's side is missing".to_owned());
        let before = [(1, "tunnel;memcpy"), (1, "tunnel;odd")];
        findings.before = Some(Stacks::of_samples(&before));
        let page = page(&findings);
        for part in [
            "3 samples of `cycles`",
            "flamegraph-diff.svg",
            "**The kernel's side is missing**",
            "| AEAD | 66.7 % | 0.0 % |",
            "| **UDP send** | **33.3 %** | 0.0 % |",
            "| copies | 0.0 % | 50.0 % |",
            "| `tunnel` | 100.0 % | the event loop",
            "| `chacha20_poly1305_seal` | AEAD | 66.7 % |",
            "| *waiting:* | | | |\n| `futex`",
            "| instructions per cycle | – |",
            "| context switches per CPU second | 250 |",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    /// The page, with one space where it has several.
    fn page(findings: &Findings) -> String {
        let text = text(findings);
        let lines = text.lines().map(|line| line.split_whitespace());
        let lines = lines.map(|words| words.collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    }
}
