//! A real Prometheus in a test's namespace, and its linter.

use std::{
    fs,
    io::Write as _,
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use convoy_lab::{Namespace, eventually};
use serde_json::Value;
use tempfile::TempDir;

use super::http;
use crate::scene::DEADLINE;

const ADDRESS: &str = "127.0.0.1:9090";

/// Killed when dropped.
pub(super) struct Prometheus<'n> {
    child: Child,
    namespace: &'n Namespace,
    directory: TempDir,
}

impl<'n> Prometheus<'n> {
    /// Scrapes `target` twice a second.
    pub(super) fn start(namespace: &'n Namespace, target: &str, token_file: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n\
             scrape_configs:\n- job_name: convoy\n  authorization:\n    credentials_file: {token_file}\n  \
             static_configs:\n  - targets: ['{target}']\n"
        );
        fs::write(&config, text).unwrap();
        let log = || {
            fs::File::options()
                .create(true)
                .append(true)
                .open(directory.path().join("log"))
        };
        let child = namespace
            .command("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .stdin(Stdio::null())
            .stdout(log().unwrap())
            .stderr(log().unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            namespace,
            directory,
        }
    }

    /// Waits until the only result of a query has this value.
    pub(super) fn becomes(&self, query: &str, expected: f64) {
        let mut last = None;
        let is_so = || {
            last = self.query(query);
            let result = last.as_ref()?["data"]["result"].as_array()?;
            let [only] = &result[..] else { return None };
            let value: f64 = only["value"][1].as_str()?.parse().ok()?;
            (value == expected).then_some(())
        };
        let became = eventually(2 * DEADLINE, is_so);
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
        assert!(
            became.is_some(),
            "{query} is not {expected}: {last:?}\n{log}"
        );
    }

    /// `None` while it does not answer.
    fn query(&self, query: &str) -> Option<Value> {
        let is_listening = || TcpStream::connect(ADDRESS).is_ok();
        if !self.namespace.run(is_listening).unwrap() {
            return None;
        }
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let target = format!("/api/v1/query?query={encoded}");
        let answer = http::get_tcp(self.namespace, ADDRESS, &target, None);
        serde_json::from_str(&answer.body).ok()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        // Both fail only if it has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets `promtool check metrics` look at names, types and descriptions.
pub(super) fn lint(open_metrics: &str) {
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut promtool = promtool
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = promtool.stdin.take().unwrap();
    stdin
        .write_all(older_format(open_metrics).as_bytes())
        .unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}\n{open_metrics}");
}

/// The format that it reads: a family has the name of its series, and there are no units and no information.
fn older_format(open_metrics: &str) -> String {
    let kinds = open_metrics.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name, kind))
    });
    let kinds: std::collections::HashMap<_, _> = kinds.collect();
    let is_known = |line: &&str| !line.starts_with("# UNIT") && !line.starts_with("# EOF");
    let lines = open_metrics.lines().filter(is_known).map(|line| {
        let mut words = line.splitn(4, ' ');
        let (Some("#"), Some(what), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return format!("{line}\n");
        };
        let (suffix, rest) = match (kinds.get(name), what) {
            (Some(&"counter"), _) => ("_total", rest),
            (Some(&"info"), "TYPE") => ("_info", "gauge"),
            (Some(&"info"), _) => ("_info", rest),
            _ => ("", rest),
        };
        format!("# {what} {name}{suffix} {rest}\n")
    });
    lines.collect()
}
