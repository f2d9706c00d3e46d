//! Results of all tests, and their summary.

use std::{fmt, ops::RangeBounds, time::Duration};

use cargo_metadata::libtest::TestEvent;

/// Number of the slowest tests that the summary names.
const SLOWEST: usize = 10;

/// Results of the tests that have run so far.
#[derive(Default)]
pub(crate) struct Tally {
    results: Vec<TestResult>,
    ignored: usize,
    /// Lines in which tests said that this machine lacks something.
    pub(crate) lacking: Vec<String>,
}

struct TestResult {
    binary: String,
    /// The test's name, or for [`Outcome::Broken`] a reason.
    name: String,
    duration: Duration,
    outcome: Outcome,
}

#[derive(PartialEq, PartialOrd)]
enum Outcome {
    Passed,
    /// Failed and, run once more, passed.
    Flaky,
    Failed,
    /// A failure that is no test's, or no test's alone.
    Broken,
}

impl Tally {
    /// Adds the results of another binary.
    pub(crate) fn add(&mut self, other: Self) {
        self.results.extend(other.results);
        self.ignored += other.ignored;
        self.lacking.extend(other.lacking);
    }

    /// Records a test that has ended.
    pub(crate) fn record(&mut self, binary: &str, event: &TestEvent) {
        let name = event.name().to_owned();
        match event {
            TestEvent::Ok { exec_time, .. } => {
                self.push(binary, name, *exec_time, Outcome::Passed);
            }
            TestEvent::Failed { exec_time, .. } => {
                self.push(binary, name, *exec_time, Outcome::Failed);
            }
            TestEvent::Ignored { .. } => self.ignored += 1,
            TestEvent::Started { .. } | TestEvent::Timeout { .. } => {}
        }
    }

    /// Records a failure that is no test's, or no test's alone.
    pub(crate) fn fail(&mut self, binary: &str, reason: String) {
        self.push(binary, reason, 0.0, Outcome::Broken);
    }

    fn push(&mut self, binary: &str, name: String, seconds: f32, outcome: Outcome) {
        self.results.push(TestResult {
            binary: binary.to_owned(),
            name,
            duration: Duration::try_from_secs_f32(seconds).unwrap_or_default(),
            outcome,
        });
    }

    /// Returns the names of the tests that have failed, unless something else has: then running them once more
    /// proves nothing.
    pub(crate) fn failed_tests(&self) -> Vec<String> {
        let failures: Vec<_> = self.with(Outcome::Failed..).collect();
        if failures.iter().any(|it| it.outcome == Outcome::Broken) {
            return Vec::new();
        }
        failures.iter().map(|it| it.name.clone()).collect()
    }

    /// Takes the results of the failed tests' second run: a test that has passed is flaky, not failed.
    pub(crate) fn run_again(&mut self, second: &Self) {
        for test in &mut self.results {
            let is_it = |it: &TestResult| (&it.binary, &it.name) == (&test.binary, &test.name);
            let mut passed = second.with(Outcome::Passed..=Outcome::Passed);
            if test.outcome == Outcome::Failed && passed.any(is_it) {
                test.outcome = Outcome::Flaky;
            }
        }
    }

    /// Fails for each of `names` that has not run: a test that was renamed must not vanish.
    pub(crate) fn expect(&mut self, binary: &str, names: &[String]) {
        for name in names {
            let is_it = |it: &TestResult| it.binary == binary && it.name == *name;
            if !self.with(..Outcome::Broken).any(is_it) {
                self.fail(binary, format!("{name} did not run"));
            }
        }
    }

    /// Number of the tests that passed, and of failures.
    pub(crate) fn passed_and_failed(&self) -> (usize, usize) {
        let failed = self.with(Outcome::Failed..).count();
        (self.results.len() - failed, failed)
    }

    pub(crate) fn is_good(&self) -> bool {
        matches!(self.passed_and_failed(), (1.., 0))
    }

    fn with(&self, outcomes: impl RangeBounds<Outcome>) -> impl Iterator<Item = &TestResult> {
        let results = self.results.iter();
        results.filter(move |it| outcomes.contains(&it.outcome))
    }

    /// Prints the summary. Its last line is the one that programs read.
    pub(crate) fn print(&self, build: Duration, tests: Duration) {
        let mut slowest: Vec<_> = self.with(..Outcome::Broken).collect();
        slowest.sort_by_key(|it| std::cmp::Reverse(it.duration));
        println!("\nSlowest tests:");
        for it in slowest.iter().take(SLOWEST) {
            let seconds = it.duration.as_secs_f32();
            println!("{seconds:>8.1} s  {}: {}", it.binary, it.name);
        }
        for line in &self.lacking {
            println!("{line}");
        }
        for TestResult { binary, name, .. } in self.with(Outcome::Flaky..=Outcome::Flaky) {
            println!("FLAKY {binary}: {name} failed, and passed when it ran once more");
        }
        for TestResult { binary, name, .. } in self.with(Outcome::Failed..) {
            println!("FAILED {binary}: {name}");
        }
        println!(
            "\nBuilt in {} s, ran in {} s; skipped tests have make targets of their own.",
            build.as_secs(),
            tests.as_secs()
        );
        if !self.lacking.is_empty() {
            println!("{} tests passed without running.", self.lacking.len());
        }
        println!("{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed) = self.passed_and_failed();
        let skipped = self.ignored;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selected_test_that_did_not_run_is_a_failure() {
        let mut tally = Tally::default();
        tally.record("convoy: end_to_end", &passed("a::b"));
        tally.expect("convoy: end_to_end", &["a::b".into()]);
        assert!(tally.is_good());
        tally.expect("convoy: end_to_end", &["a::c".into()]);
        assert!(!tally.is_good());
    }

    fn failed(name: &str) -> TestEvent {
        event("failed", name)
    }

    fn passed(name: &str) -> TestEvent {
        event("ok", name)
    }

    fn event(kind: &str, name: &str) -> TestEvent {
        let event = serde_json::json!({"event": kind, "name": name, "exec_time": 0.5});
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn a_test_that_passes_the_second_time_is_flaky_and_one_that_fails_twice_has_failed() {
        let mut tally = Tally::default();
        tally.record("b", &failed("once"));
        tally.record("b", &failed("twice"));
        tally.record("b", &passed("never"));
        assert_eq!(tally.failed_tests(), ["once", "twice"]);
        let mut second = Tally::default();
        second.record("b", &passed("once"));
        second.record("b", &failed("twice"));
        tally.run_again(&second);
        assert!(!tally.is_good());
        assert_eq!(tally.failed_tests(), ["twice"]);
        assert_eq!(tally.passed_and_failed(), (2, 1));
        let flaky = tally.with(Outcome::Flaky..=Outcome::Flaky);
        assert!(flaky.map(|it| &it.name).eq(["once"]));
    }

    #[test]
    fn a_failed_test_that_does_not_end_its_second_run_has_failed() {
        let mut tally = Tally::default();
        tally.record("b", &failed("a"));
        let mut second = Tally::default();
        second.fail("b", "signal: 6".into());
        tally.run_again(&second);
        assert!(!tally.is_good());
        tally.run_again(&Tally::default());
        assert!(!tally.is_good());
    }

    #[test]
    fn after_a_crash_no_test_is_run_again() {
        let mut tally = Tally::default();
        tally.record("b", &failed("a"));
        tally.fail("b", "signal: 6".into());
        assert!(tally.failed_tests().is_empty());
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        assert!(!Tally::default().is_good());
    }
}
