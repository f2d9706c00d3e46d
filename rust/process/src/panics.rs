//! A panic in any thread logs one line and ends the process, whether or not anyone reads the log.

pub(crate) mod ending;

use std::{fmt::Write as _, panic, thread, time::Duration};

use tracing::error;

pub use ending::let_it_end;

use crate::{logging::say, own_files::OwnFiles};

/// Time limit for writing the line: its reader may have stopped reading.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Makes a panic in any thread log one line, remove the socket files and exit with status 1.
pub fn end_process(own_files: OwnFiles) {
    panic::set_hook(Box::new(move |panic| {
        if !ending::begin() {
            // Another thread panicked first; its line ends the process.
            wait_for_ever();
        }
        let thread = thread::current();
        end_in_time(own_files.clone());
        let thread = thread.name().unwrap_or("unnamed");
        let mut line = format!("thread {thread} panicked");
        if let Some(place) = panic.location() {
            // Writing to a string does not fail.
            let _ = write!(line, " at {place}");
        }
        let message = panic.payload_as_str().unwrap_or("no message");
        line.extend([": ", &message.replace(char::is_control, " ")]);
        if tracing::enabled!(tracing::Level::ERROR) {
            error!("{line}");
        } else {
            say(&format!("convoy: {line}"));
        }
        end(&own_files);
    }));
}

/// Ends the process after [`REPORT_TIME`].
fn end_in_time(own_files: OwnFiles) {
    // If no thread can be started, the process ends once the line is read.
    let _ = thread::Builder::new().spawn(move || {
        thread::sleep(REPORT_TIME);
        end(&own_files);
    });
}

fn end(own_files: &OwnFiles) -> ! {
    own_files.remove();
    // SAFETY: it does not return. Unlike exit(3) it takes no lock; all output has already left the
    // process line by line.
    unsafe { libc::_exit(1) }
}

fn wait_for_ever() -> ! {
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        path::PathBuf,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::socket;

    /// Names the socket file. Set only in the process that is to panic.
    const SOCKET: &str = "CONVOY_TEST_PANIC_SOCKET";

    #[test]
    fn a_panic_in_any_thread_logs_one_line_and_ends_the_process() {
        if let Some(path) = env::var_os(SOCKET) {
            panic_in_two_threads(PathBuf::from(path));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let name = "panics::tests::a_panic_in_any_thread_logs_one_line_and_ends_the_process";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SOCKET, &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("convoy: thread tun-writer panicked at "));
        assert!(said.ends_with(": two lines\n"), "{said}");
        assert!(!path.exists());
    }

    fn panic_in_two_threads(path: PathBuf) -> ! {
        let (_listener, file) = socket::bind(&path).unwrap();
        let mut own_files = OwnFiles::default();
        own_files.add([file]);
        end_process(own_files);
        let threads = [0, 1].map(|_| {
            let thread = thread::Builder::new().name("tun-writer".to_owned());
            thread.spawn(|| panic!("two\nlines")).unwrap()
        });
        let _ = threads.map(thread::JoinHandle::join);
        unreachable!("the process has ended")
    }
}
