use super::*;

#[test]
fn a_page_reads_everything_together() {
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
            count: 10,
            errors: 0,
            calls_per_gb: Some(20.0),
        },
        calls: vec![call("sendmsg")],
        waits: vec![call("futex")],
    };
    let page = text(&Findings {
        stat: Some(&stat),
        syscalls: Some(&syscalls),
        notes: vec!["The kernel's side is missing".to_owned()],
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
fn a_page_without_counters_and_system_calls_leaves_them_out() {
    let page = text(&findings(&stacks(&["memcpy"])));
    for part in ["## System calls", "## Counters", "before"] {
        assert!(!page.contains(part), "{part}\n{page}");
    }
}

#[test]
fn a_comparison_shows_both_shares() {
    let (before, now) = (stacks(&["memcpy", "odd"]), stacks(&["odd"]));
    let page = text(&Findings {
        before: Some(&before),
        ..findings(&now)
    });
    assert!(page.contains("| copies | 0.0 % | 50.0 % |"), "{page}");
    assert!(page.contains("flamegraph-diff.svg"), "{page}");
}

fn findings(stacks: &Stacks) -> Findings<'_> {
    Findings {
        what: "a test",
        stacks,
        before: None,
        notes: Vec::new(),
        stat: None,
        syscalls: None,
    }
}

fn stacks(functions: &[&str]) -> Stacks {
    let sample = |function: &&str| format!("tunnel 1/2 1.5: 1 cycles: \n\t1 {function} (a)\n\n");
    let text: String = functions.iter().map(sample).collect();
    Stacks::of(text.as_bytes()).unwrap()
}

fn call(name: &str) -> Call {
    Call {
        name: name.to_owned(),
        count: 10,
        errors: 1,
        seconds: 0.1,
        calls_per_gb: Some(20.0),
    }
}
