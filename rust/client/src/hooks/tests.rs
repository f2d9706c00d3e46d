use std::{fs, path::Path, sync::Mutex, sync::PoisonError};

use nix::sys::prctl::set_child_subreaper;

use super::*;

/// A hook also kills what other hooks of this process leave.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn hooks_run_in_order_with_the_interfaces_name() {
    let scene = Scene::new();
    let marks = scene.path("marks");
    let [first, second] = ["first", "%i"].map(|word| format!("echo {word} >> {}", marks.display()));
    scene.run(&[&first, &second]).unwrap();
    assert_eq!(fs::read_to_string(marks).unwrap(), "first\nwg0\n");
}

#[test]
fn a_hook_that_fails_stops_the_others_and_its_command_stays_secret() {
    let scene = Scene::new();
    let mark = scene.path("mark");
    let error = scene.run(&[": secret; exit 7", &format!("touch {}", mark.display())]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.ends_with("wg0.conf:2: PostUp failed (exit status: 7)"),
        "{error}"
    );
    assert!(!mark.exists());
}

#[test]
fn a_hook_stops_at_its_first_failing_command_as_in_wg_quick() {
    let scene = Scene::new();
    for command in ["false; true", "false | cat"] {
        let outcome = scene.run(&[command]);
        assert!(
            matches!(outcome, Err(HookError::Failed { .. })),
            "{command}: {outcome:?}"
        );
    }
    scene
        .run(&["if false; then true; fi; [[ ab == @(ab|cd) ]]"])
        .unwrap();
}

#[test]
fn a_hook_that_takes_too_long_is_ended_with_all_that_it_started() {
    let scene = Scene::new();
    let pids = scene.path("pids");
    let pids_path = pids.display();
    // A child in its process group, one that has left it, and one whose parent has died, too.
    let leave = format!("setsid sh -c 'echo $$ >> {pids_path}; exec sleep 1000' &");
    let command = format!(
        "sleep 1000 & echo $! >> {pids_path}; {leave} ({leave}) ; \
         until [ $(wc -l < {pids_path}) = 3 ]; do :; done; cat"
    );
    let mut hooks = scene.hooks(&[&format!("{command} < <(sleep 1000)")]);
    // It has ample time: the file is complete by the time it hangs.
    hooks.limit = Duration::from_secs(2);
    let outcome = scene.wait_for(hooks);
    assert!(
        matches!(outcome, Err(HookError::TimedOut { .. })),
        "{outcome:?}"
    );
    let pids = fs::read_to_string(pids).unwrap();
    let left: Vec<_> = pids.lines().filter(|pid| is_alive(pid)).collect();
    assert_eq!(pids.lines().count(), 3);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_successful_hook_leaves_goes_on() {
    let scene = Scene::new();
    let [go, gone] = ["go", "gone"].map(|name| scene.path(name));
    let (go_path, gone_path) = (go.display(), gone.display());
    let command = format!("until [ -e {go_path} ]; do sleep 0.01; done; touch {gone_path}");
    scene.run(&[&format!("{{ {command}; }} &")]).unwrap();
    fs::write(&go, "").unwrap();
    let reaches_its_end = async {
        while !gone.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(20);
    scene.block_on(async { timeout(limit, reaches_its_end).await.unwrap() });
}

#[test]
fn a_hook_that_nobody_waits_for_any_more_is_ended() {
    let scene = Scene::new();
    let pids = scene.path("pids");
    let path = pids.display();
    let command = format!(
        "setsid sh -c 'echo $$ >> {path}; exec sleep 1000' & \
         until [ -s {path} ]; do :; done; echo $$ >> {path}; exec sleep 1000"
    );
    let hooks = scene.hooks(&[&command]);
    scene.block_on(async {
        let are_started = async {
            while fs::read_to_string(&pids).map_or(0, |pids| pids.lines().count()) < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            outcome = hooks.run() => panic!("{outcome:?}"),
            () = are_started => {}
        }
    });
    let pids = fs::read_to_string(&pids).unwrap();
    let left: Vec<_> = pids.lines().filter(|pid| is_alive(pid)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_hook_reads_nothing_and_learns_nothing_of_the_supervisor() {
    let scene = Scene::new();
    let seen = scene.path("seen");
    let command = format!(
        "{{ cat; env; tr '\\0' ' ' < /proc/$$/cmdline; }} > {}",
        seen.display()
    );
    scene.run(&[&command]).unwrap();
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("-c eval"), "{seen}");
    assert!(
        !seen.contains("cmdline"),
        "a key in it would be public: {seen}"
    );
    assert!(seen.contains("LC_ALL=C\n"), "{seen}");
    let command = Shell::find().command();
    for name in INTERNAL {
        let mut changes = command.as_std().get_envs();
        let is_removed = changes.any(|change| change == (name.as_ref(), None));
        assert!(is_removed, "{name}");
    }
}

#[test]
fn hooks_of_an_untrusted_file_do_not_run() {
    let scene = Scene::new();
    let mark = scene.path("mark");
    let mut hooks = scene.hooks(&[&format!("touch {}", mark.display())]);
    hooks.trusted = Err(Untrusted::Writable {
        path: "/etc".into(),
        mode: 0o777,
    });
    let error = scene.wait_for(hooks).unwrap_err().to_string();
    assert!(error.contains("others can write to /etc"), "{error}");
    assert!(!mark.exists());
}

#[test]
fn a_failure_to_start_is_told_apart() {
    let scene = Scene::new();
    let mut hooks = scene.hooks(&["true"]);
    hooks.shell.program = "/nonexistent".into();
    let outcome = scene.wait_for(hooks);
    assert!(
        matches!(outcome, Err(HookError::NotStarted { .. })),
        "{outcome:?}"
    );
}

struct Scene {
    directory: tempfile::TempDir,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Scene {
    fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        set_child_subreaper(true).unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, commands: &[&str]) -> Result<(), HookError> {
        self.wait_for(self.hooks(commands))
    }

    fn wait_for(&self, hooks: Hooks) -> Result<(), HookError> {
        self.block_on(hooks.run())
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(work)
    }

    /// A configuration's `PostUp` hooks, trusted although the file is in a public directory.
    fn hooks(&self, commands: &[&str]) -> Hooks {
        let path = self.path("wg0.conf");
        write(&path, commands);
        let mut config = convoy_config::read(&path).unwrap().config;
        config.hooks_trusted = Ok(());
        Hooks::of(&config, Moment::PostUp, None, None)
    }
}

fn write(path: &Path, commands: &[&str]) {
    let lines: String = commands
        .iter()
        .map(|it| format!("PostUp = {it}\n"))
        .collect();
    fs::write(path, format!("[Interface]\n{lines}")).unwrap();
}

/// Returns whether a process runs; a zombie does not.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}
