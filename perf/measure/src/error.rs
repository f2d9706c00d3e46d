//! Why a measurement or a profile failed; if there is a fix, the message ends with it.

use std::{error::Error as StdError, fmt::Display, io};

use convoy_lab::LabError;

/// Why a speed test or a profile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step failed.
    #[error("{step}")]
    Step {
        /// The step, the file, or a remark with its fix.
        step: String,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The request cannot be met, or a program fails.
    #[error("{0}")]
    Refused(String),
    /// An error of the namespaces, a daemon in them, or the traffic.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Adds the fix to an error caused by a resource shortage.
    pub(crate) fn explain_shortage(self) -> Self {
        let causes = std::iter::successors(Some(&self as &dyn StdError), |&cause| cause.source());
        let mut systems = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
        let fix = match systems.find_map(io::Error::raw_os_error) {
            Some(libc::ENOMEM) => {
                "out of memory (fix: end other programs, or raise the limit: `ulimit -v unlimited`, the \
                 container's memory)"
            }
            Some(libc::EAGAIN) => {
                "no more processes or threads (fix: raise `ulimit -u`, or the container's limit of processes)"
            }
            Some(libc::EMFILE | libc::ENFILE) => "no more open files (fix: raise `ulimit -n`)",
            _ => return self,
        };
        Self::Step {
            step: fix.to_owned(),
            source: self.into(),
        }
    }
}

/// Names the step that failed.
pub(crate) trait Step<T> {
    fn step(self, step: impl Display) -> Result<T, Error>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Step<T> for Result<T, E> {
    fn step(self, step: impl Display) -> Result<T, Error> {
        self.map_err(|source| Error::Step {
            step: step.to_string(),
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_explained_and_other_errors_are_left_alone() {
        let text = |code| {
            let failed = Err::<(), _>(io::Error::from_raw_os_error(code)).step("fork");
            failed.unwrap_err().explain_shortage().to_string()
        };
        assert!(text(libc::ENOMEM).contains("fix: end other programs"));
        assert!(text(libc::EAGAIN).contains("ulimit -u"));
        assert_eq!(text(libc::ENOENT), "fork");
    }
}
