//! `report.md`: what was found, read together.

mod symptoms;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{
    Group, Stacks, flame_graph, groups, record,
    stat::{self, Stat},
    syscalls::{self, Call, Syscalls},
};

pub(crate) const FILE: &str = "report.md";
/// How many functions are listed.
const HOTTEST: usize = 20;
/// How many system calls are listed.
const CALLS: usize = 12;

/// What there is to report.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    /// What was profiled, for people.
    pub(crate) what: &'a str,
    pub(crate) stacks: &'a Stacks,
    /// The profile to compare with.
    pub(crate) before: Option<&'a Stacks>,
    /// What is missing, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) stat: Option<&'a Stat>,
    pub(crate) syscalls: Option<&'a Syscalls>,
}

/// The whole page, in Markdown.
pub(crate) fn text(findings: &Findings<'_>) -> String {
    let mut sections = vec![
        head(findings),
        by_group(findings),
        by_thread(findings.stacks),
    ];
    sections.push(hottest(findings.stacks));
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
    for note in &findings.notes {
        text += &format!("\n**{note}**\n");
    }
    text
}

fn by_group(findings: &Findings<'_>) -> String {
    let before = findings
        .before
        .map(|before| (groups::counts(before), before.total()));
    let total = findings.stacks.total();
    let mut text =
        "## Where the CPU time goes\n\nBold is more than usual for TCP at full speed; small \
                    packets move everything from AEAD to the calls.\n\n"
            .to_owned();
    text += match before {
        Some(_) => {
            "| group | share | before | what it means | what to try |\n|---|--:|--:|---|---|\n"
        }
        None => "| group | share | what it means | what to try |\n|---|--:|---|---|\n",
    };
    for (place, (group, count)) in groups::counts(findings.stacks).into_iter().enumerate() {
        let share = percent(count, total);
        let symptom = symptoms::of(group);
        let is_unusual = count as f64 > symptom.usual * total as f64;
        let (name, share) = match is_unusual {
            true => (format!("**{}**", group.name()), format!("**{share}**")),
            false => (group.name().to_owned(), share),
        };
        let before = before.map(|(counts, total)| percent(counts[place].1, total) + " | ");
        let before = before.unwrap_or_default();
        let symptoms::Symptom { means, attempt, .. } = symptom;
        text += &format!("| {name} | {share} | {before}{means} | {attempt} |\n");
    }
    text
}

fn by_thread(stacks: &Stacks) -> String {
    let mut threads: BTreeMap<&str, u64> = BTreeMap::new();
    for (mut names, count) in stacks.iter() {
        *threads.entry(names.next().unwrap_or_default()).or_default() += count;
    }
    let rows = sorted(threads).into_iter().map(|(thread, count)| {
        let stage = symptoms::stage(thread);
        format!(
            "| `{thread}` | {} | {stage} |\n",
            percent(count, stacks.total())
        )
    });
    "## Threads\n\n| thread | share | what it does |\n|---|--:|---|\n".to_owned()
        + &rows.collect::<String>()
}

fn hottest(stacks: &Stacks) -> String {
    let mut functions: BTreeMap<(&str, Group), u64> = BTreeMap::new();
    for (names, count) in stacks.iter() {
        let names: Vec<_> = names.skip(1).collect();
        let innermost = names.last().copied().unwrap_or("[unknown]");
        let group = Group::of(names.into_iter().rev());
        *functions.entry((innermost, group)).or_default() += count;
    }
    let rows = sorted(functions).into_iter().take(HOTTEST);
    let rows = rows.map(|((function, group), count)| {
        let share = percent(count, stacks.total());
        format!("| `{function}` | {} | {share} |\n", group.name())
    });
    "## Hottest functions\n\nBy the time in themselves, without what they call.\n\n\
     | function | group | share |\n|---|---|--:|\n"
        .to_owned()
        + &rows.collect::<String>()
}

fn system_calls(syscalls: &Syscalls) -> String {
    let traffic = match syscalls.gigabytes {
        Some(gigabytes) => format!("{gigabytes:.2} GB went through the tunnel meanwhile"),
        None => "nothing went through the tunnel meanwhile, as far as is known".to_owned(),
    };
    let per_gb = optional(syscalls.total.calls_per_gb, 0);
    let mut text = format!(
        "## System calls\n\nFrom a run under `strace`, which slows the daemons down: {traffic}. \
         {} calls that do not wait, **{per_gb} calls/GB**. All are in `{}`.\n\n",
        syscalls.total.count,
        syscalls::FILE,
    );
    text += "| call | count | errors | calls/GB |\n|---|--:|--:|--:|\n";
    let row = |call: &Call| {
        let per_gb = optional(call.calls_per_gb, 0);
        format!(
            "| `{}` | {} | {} | {per_gb} |\n",
            call.name, call.count, call.errors
        )
    };
    text.extend(syscalls.calls.iter().take(CALLS).map(row));
    text += "| *waiting:* | | | |\n";
    text.extend(syscalls.waits.iter().take(CALLS).map(row));
    text += "\nMany calls for a gigabyte mean small batches: compare `convoy stats`. Waiting is not a \
             cost, but many waits for a gigabyte mean that threads wake each other for little.\n";
    text
}

fn counters(stat: &Stat) -> String {
    let share = |part: Option<f64>, whole: Option<f64>| {
        let whole = whole.filter(|&whole| whole > 0.0);
        part.zip(whole).map(|(part, whole)| part / whole * 100.0)
    };
    let a_second = |count: Option<f64>| {
        let running = stat.cpu_seconds.filter(|&seconds| seconds > 0.0);
        count.zip(running).map(|(count, seconds)| count / seconds)
    };
    let rows = [
        (
            "CPU seconds",
            optional(stat.cpu_seconds, 2),
            "of all threads",
        ),
        (
            "instructions a cycle",
            optional(stat.ipc, 2),
            "below 1: it waits for memory; encryption alone has 2 to 3",
        ),
        (
            "cache misses, %",
            optional(share(stat.cache_misses, stat.cache_references), 1),
            "over 20: batches do not stay in the cache between stages",
        ),
        (
            "branch misses, %",
            optional(share(stat.branch_misses, stat.branches), 1),
            "over 2: traffic is mixed, or small",
        ),
        (
            "context switches a CPU second",
            optional(a_second(stat.context_switches), 0),
            "over 20,000: threads take turns for single packets",
        ),
        (
            "migrations a CPU second",
            optional(a_second(stat.migrations), 0),
            "over 100: try `taskset`, or fewer other programs",
        ),
    ];
    let mut text = format!(
        "## Counters\n\n– is what this machine does not count (`{}`).\n\n| | | |\n|---|--:|---|\n",
        stat::FILE
    );
    for (name, value, meaning) in rows {
        // Writing into a string does not fail.
        let _ = writeln!(text, "| {name} | {value} | {meaning} |");
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
mod tests;
