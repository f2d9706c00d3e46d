//! Results of all tests, and their summary.

use std::{collections::BTreeSet, time::Duration};

use cargo_metadata::libtest::TestEvent;

/// Number of the slowest tests that the summary names.
const SLOWEST: usize = 10;

/// Results of the tests that have run so far.
#[derive(Default)]
pub(crate) struct Tally {
    /// Tests that have passed or failed.
    done: BTreeSet<Test>,
    durations: Vec<(Duration, Test)>,
    passed: usize,
    failed: Vec<Failure>,
    ignored: usize,
    /// Tests that have failed and, run once more, passed.
    flaky: Vec<Test>,
    /// Lines in which tests said that this machine lacks something.
    lacking: Vec<String>,
}

/// A binary's name and a test's.
type Test = (String, String);

enum Failure {
    /// A test has failed.
    Test(Test),
    /// A failure that is no test's, or no test's alone.
    Other(String),
}

/// Results of one binary.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Tally {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            passed: self.passed,
            failed: self.failed.len(),
            ignored: self.ignored,
        }
    }

    /// Adds the results of another binary.
    pub(crate) fn add(&mut self, other: Self) {
        self.done.extend(other.done);
        self.durations.extend(other.durations);
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.ignored += other.ignored;
        self.flaky.extend(other.flaky);
        self.lacking.extend(other.lacking);
    }

    /// Records a test that has ended.
    pub(crate) fn record(&mut self, binary: &str, event: &TestEvent) {
        let test = (binary.to_owned(), event.name().to_owned());
        let seconds = match event {
            TestEvent::Ok { exec_time, .. } => {
                self.passed += 1;
                *exec_time
            }
            TestEvent::Failed { exec_time, .. } => {
                self.failed.push(Failure::Test(test.clone()));
                *exec_time
            }
            TestEvent::Ignored { .. } => {
                self.ignored += 1;
                return;
            }
            TestEvent::Started { .. } | TestEvent::Timeout { .. } => return,
        };
        let duration = Duration::try_from_secs_f32(seconds).unwrap_or_default();
        self.durations.push((duration, test.clone()));
        self.done.insert(test);
    }

    /// Records a failure that is no test's, or no test's alone.
    pub(crate) fn fail(&mut self, binary: &str, what: &str) {
        self.failed
            .push(Failure::Other(format!("{binary}: {what}")));
    }

    /// Returns the names of the tests that have failed, unless something else has: then running them once more
    /// proves nothing.
    pub(crate) fn failed_tests(&self) -> Vec<String> {
        let names = self.failed.iter().map(|failure| match failure {
            Failure::Test((_, name)) => Some(name.clone()),
            Failure::Other(_) => None,
        });
        names.collect::<Option<_>>().unwrap_or_default()
    }

    /// Takes the results of the failed tests' second run: a test that has passed is flaky, not failed.
    pub(crate) fn run_again(&mut self, second: &Self) {
        let has_failed = |test: &Test| {
            let is_it = |failure: &Failure| matches!(failure, Failure::Test(it) if it == test);
            second.failed.iter().any(is_it)
        };
        for failure in std::mem::take(&mut self.failed) {
            match failure {
                Failure::Test(test) if second.done.contains(&test) && !has_failed(&test) => {
                    self.passed += 1;
                    self.flaky.push(test);
                }
                other => self.failed.push(other),
            }
        }
    }

    pub(crate) fn lacks(&mut self, line: String) {
        self.lacking.push(line);
    }

    /// Fails for each of `names` that has not run: a test that was renamed must not vanish.
    pub(crate) fn expect(&mut self, binary: &str, names: &[String]) {
        for name in names {
            if !self.done.contains(&(binary.to_owned(), name.clone())) {
                self.fail(binary, &format!("{name} did not run"));
            }
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.passed > 0
    }

    /// Prints the summary. Its last line is the one that programs read.
    pub(crate) fn print(&mut self, build: Duration, tests: Duration) {
        self.durations.sort_by(|a, b| b.cmp(a));
        println!("\nSlowest tests:");
        for (duration, (binary, name)) in self.durations.iter().take(SLOWEST) {
            println!("{:>8.1} s  {binary}: {name}", duration.as_secs_f32());
        }
        for line in &self.lacking {
            println!("{line}");
        }
        for (binary, name) in &self.flaky {
            println!("FLAKY {binary}: {name} failed, and passed when it ran once more");
        }
        for failure in &self.failed {
            match failure {
                Failure::Test((binary, name)) => println!("FAILED {binary}: {name}"),
                Failure::Other(what) => println!("FAILED {what}"),
            }
        }
        println!(
            "\nBuilt in {} s, ran in {} s; skipped tests have make targets of their own.",
            build.as_secs(),
            tests.as_secs()
        );
        if !self.lacking.is_empty() {
            println!("{} tests passed without running.", self.lacking.len());
        }
        let Counts {
            passed,
            failed,
            ignored,
        } = self.counts();
        println!("{passed} passed, {failed} failed, {ignored} skipped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selected_test_that_did_not_run_is_a_failure() {
        let mut tally = Tally::default();
        let event = TestEvent::Ok {
            name: "a::b".into(),
            exec_time: 0.5,
            stdout: None,
        };
        tally.record("convoy: end_to_end", &event);
        tally.expect("convoy: end_to_end", &["a::b".into()]);
        assert!(tally.is_good());
        tally.expect("convoy: end_to_end", &["a::c".into()]);
        assert!(!tally.is_good());
    }

    fn failed(name: &str) -> TestEvent {
        TestEvent::Failed {
            name: name.into(),
            exec_time: 0.5,
            stdout: None,
            reason: None,
            message: None,
        }
    }

    fn passed(name: &str) -> TestEvent {
        TestEvent::Ok {
            name: name.into(),
            exec_time: 0.5,
            stdout: None,
        }
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
        assert_eq!(tally.counts().passed, 2);
        assert_eq!(tally.flaky, [("b".into(), "once".into())]);
    }

    #[test]
    fn a_failed_test_that_does_not_end_its_second_run_has_failed() {
        let mut tally = Tally::default();
        tally.record("b", &failed("a"));
        let mut second = Tally::default();
        second.fail("b", "signal: 6");
        tally.run_again(&second);
        assert!(!tally.is_good());
        tally.run_again(&Tally::default());
        assert!(!tally.is_good());
    }

    #[test]
    fn after_a_crash_no_test_is_run_again() {
        let mut tally = Tally::default();
        tally.record("b", &failed("a"));
        tally.fail("b", "signal: 6");
        assert!(tally.failed_tests().is_empty());
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        assert!(!Tally::default().is_good());
    }
}
