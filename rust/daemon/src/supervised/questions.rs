//! Questions to the supervisor, asked by the threads that serve UAPI clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use convoy_proto::config::{DeviceUpdate, Snapshot};
use convoy_tunnel::{ApplyError, Closed};
use nix::unistd::Pid;
use tokio::sync::{Notify, mpsc};
use tracing::{debug, warn};

use super::protocol::ToSupervisor;
use convoy_uapi::{Control, Refused};

/// Time for which a change waits for the supervisor's answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time for which another mark waits for the next supervisor if there is none, for example during an upgrade.
const NEXT_TIME: Duration = Duration::from_secs(2);

/// The most questions that wait: as many as there are UAPI clients.
pub(super) const MAX_QUESTIONS: usize = convoy_uapi::MAX_CLIENTS;

/// Process number that stands for no supervisor.
const NOBODY: libc::pid_t = -1;

/// Asks the supervisor, if there is one, before the firewall mark or the port changes: routing rules and the
/// kill switch depend on them.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    questions: mpsc::Sender<Question>,
    /// Signals that a client other than the supervisor has changed the tunnel.
    changed: Arc<Notify>,
    supervisor: Supervisor,
    time: Duration,
    next_time: Duration,
}

/// One question, with the channel for its answer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) fwmark: Option<u32>,
    pub(super) listen_port: Option<u16>,
    /// Deadline of the waiting change.
    pub(super) until: Instant,
    pub(super) answer: SyncSender<Answer>,
}

impl Question {
    pub(super) fn message(&self, id: u64) -> ToSupervisor {
        ToSupervisor::Asks {
            id,
            fwmark: self.fwmark,
            listen_port: self.listen_port,
        }
    }
}

/// The reason if the change is refused.
pub(super) type Answer = Option<String>;

/// A tunnel whose UAPI clients need its supervisor's consent for some changes.
#[derive(Clone, Debug)]
pub struct Consenting<T> {
    pub(crate) tunnel: T,
    /// `None` if the tunnel never has a supervisor.
    pub(crate) questions: Option<Questions>,
}

impl<T: Control> Control for Consenting<T> {
    fn needs_consent(&self, update: &DeviceUpdate, client: Option<Pid>) -> bool {
        let questions = self.questions.as_ref();
        questions.is_some_and(|it| it.time_for(update, client).is_some())
    }

    fn permit(&self, update: &DeviceUpdate, client: Option<Pid>) -> Result<(), Refused> {
        let questions = self.questions.as_ref();
        questions.map_or(Ok(()), |it| it.permit(update, client))
    }

    fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        self.tunnel.apply(update)
    }

    fn changed_by(&self, client: Option<Pid>) {
        if let Some(questions) = &self.questions {
            questions.changed_by(client);
        }
    }

    fn snapshot(&self) -> Result<Snapshot, Closed> {
        self.tunnel.snapshot()
    }
}

/// The process that supervises the tunnel now, if any.
#[derive(Clone, Debug)]
pub(super) struct Supervisor(Arc<AtomicI32>);

impl Questions {
    /// Also returns the other side's ends: the questions, and the cell for the present supervisor.
    pub(super) fn new() -> (Self, mpsc::Receiver<Question>, Supervisor) {
        let (questions, receiver) = mpsc::channel(MAX_QUESTIONS);
        let supervisor = Supervisor(Arc::new(AtomicI32::new(NOBODY)));
        let ours = Self {
            questions,
            changed: Arc::default(),
            supervisor: supervisor.clone(),
            time: ANSWER_TIME,
            next_time: NEXT_TIME,
        };
        (ours, receiver, supervisor)
    }

    /// Waits until the supervisor has answered whether `update`, a request of `client`, may take effect. Blocks.
    ///
    /// Without an answer it may: a supervisor that hangs must not keep a tunnel from being configured. The
    /// supervisor's own requests are not asked about, and without a supervisor only another mark, which the next one
    /// sets.
    pub(crate) fn permit(&self, update: &DeviceUpdate, client: Option<Pid>) -> Result<(), Refused> {
        let Some(time) = self.time_for(update, client) else {
            return Ok(());
        };
        let (answer, answers) = sync_channel(1);
        let question = Question {
            fwmark: update.fwmark,
            listen_port: update.listen_port,
            until: Instant::now() + time,
            answer,
        };
        if self.questions.try_send(question).is_err() {
            warn!("UAPI: too many questions to the supervisor; this one is not asked");
            return Ok(());
        }
        match answers.recv_timeout(time) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(Refused(reason)),
            Err(RecvTimeoutError::Disconnected) => {
                debug!("UAPI: the supervisor has gone without an answer");
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => {
                warn!(
                    "UAPI: no answer from the supervisor within {time:?}: the mark or port changes, \
                     and its rules may not follow until `convoy reload`"
                );
                Ok(())
            }
        }
    }

    /// Returns how long `update`, a request of `client`, waits for an answer; `None` if nobody is asked.
    fn time_for(&self, update: &DeviceUpdate, client: Option<Pid>) -> Option<Duration> {
        let concerns_supervisor = update.fwmark.is_some() || update.listen_port.is_some();
        match self.supervisor.is_there() {
            true if concerns_supervisor && self.supervisor.is_other_than(client) => Some(self.time),
            false if update.fwmark.is_some() => Some(self.next_time),
            _ => None,
        }
    }

    /// Lets the supervisor know that a request of `client` was applied, unless it was its own. Several such signals may
    /// become one.
    fn changed_by(&self, client: Option<Pid>) {
        if self.supervisor.is_other_than(client) {
            self.changed.notify_one();
        }
    }

    /// Signals that a client other than the supervisor has changed the tunnel.
    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    #[cfg(test)]
    pub(super) fn with_time(self, time: Duration) -> Self {
        Self {
            time,
            next_time: time,
            ..self
        }
    }
}

impl Supervisor {
    /// `None` for a process that cannot be seen from here.
    pub(super) fn is(&self, process: Option<Pid>) {
        let number = process.map_or(0, Pid::as_raw);
        self.0.store(number, Ordering::Relaxed);
    }

    pub(super) fn is_gone(&self) {
        self.0.store(NOBODY, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NOBODY
    }

    /// Returns whether there is a supervisor, and it is not `client`.
    fn is_other_than(&self, client: Option<Pid>) -> bool {
        let supervisor = self.0.load(Ordering::Relaxed);
        supervisor != NOBODY && client.map(Pid::as_raw) != Some(supervisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPERVISOR: Pid = Pid::from_raw(100);
    const CLIENT: Option<Pid> = Some(Pid::from_raw(7));

    #[test]
    fn only_others_changes_of_mark_or_port_are_asked_about() {
        let (questions, mut asked, supervisor) = Questions::new();
        let questions = questions.with_time(Duration::ZERO);
        let mut ask = |update: &DeviceUpdate, client| {
            questions.permit(update, client).unwrap();
            asked.try_recv().map(|q| (q.fwmark, q.listen_port)).ok()
        };
        assert_eq!(ask(&port(9), CLIENT), None, "nobody to ask");
        assert_eq!(ask(&mark(7), CLIENT), Some((Some(7), None)), "of the next");
        supervisor.is(Some(SUPERVISOR));
        assert_eq!(ask(&mark(7), CLIENT), Some((Some(7), None)));
        assert_eq!(ask(&mark(7), None), Some((Some(7), None)));
        assert_eq!(ask(&port(9), CLIENT), Some((None, Some(9))));
        assert_eq!(ask(&DeviceUpdate::default(), CLIENT), None);
        assert_eq!(ask(&mark(7), Some(SUPERVISOR)), None);
        supervisor.is(None);
        assert_eq!(ask(&mark(7), None), Some((Some(7), None)));
        supervisor.is_gone();
        assert_eq!(ask(&port(9), CLIENT), None);
    }

    #[test]
    fn the_supervisor_decides() {
        for refused in [None, Some("the kill switch needs the mark".to_owned())] {
            let (questions, mut asked, supervisor) = Questions::new();
            supervisor.is(Some(SUPERVISOR));
            let answer = refused.clone();
            let answering = std::thread::spawn(move || {
                let question = asked.blocking_recv().unwrap();
                question.answer.send(answer).unwrap();
            });
            let decided = questions.permit(&mark(7), CLIENT).err().map(|it| it.0);
            assert_eq!(decided, refused);
            answering.join().unwrap();
        }
    }

    #[test]
    fn without_an_answer_the_change_takes_effect() {
        let (questions, asked, supervisor) = Questions::new();
        let questions = questions.with_time(Duration::from_millis(1));
        supervisor.is(Some(SUPERVISOR));
        // More than fit.
        for _ in 0..=MAX_QUESTIONS {
            questions.permit(&mark(7), CLIENT).unwrap();
        }
        drop(asked);
        questions.permit(&mark(7), CLIENT).unwrap();
    }

    fn mark(fwmark: u32) -> DeviceUpdate {
        DeviceUpdate {
            fwmark: Some(fwmark),
            ..DeviceUpdate::default()
        }
    }

    fn port(listen_port: u16) -> DeviceUpdate {
        DeviceUpdate {
            listen_port: Some(listen_port),
            ..DeviceUpdate::default()
        }
    }
}
