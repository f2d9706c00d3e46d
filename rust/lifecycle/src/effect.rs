//! Effects that a state asks for.

use std::{fmt, time::SystemTime};

/// Work for a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A step, which ends with an event.
    Step(Step),

    /// Does what the waiting client asks, and answers it.
    Answer,
    /// Tells the waiting client that it is done.
    Confirm,
    /// Tells the waiting client why not.
    Refuse(Refusal),
    /// Reads the files again.
    Reload,
    /// Becomes the version of the program that is installed now.
    Replace,

    /// Opens the host for a time, for the waiting client. Ends with [`Event::Paused`](crate::Event::Paused), or
    /// with the client's answer if it fails.
    Pause {
        /// Its length.
        seconds: u64,
    },
    /// Closes the host again, for the waiting client. Ends with [`Event::Resumed`](crate::Event::Resumed), or with
    /// the client's answer if it fails.
    Resume,
    /// Notes and announces a pause.
    NotePause {
        /// Its length.
        seconds: u64,
        /// Its end.
        until: SystemTime,
    },
    /// Notes and announces the end of a pause.
    NoteResumed {
        /// Whether a client wanted it.
        is_asked: bool,
    },
    /// Undoes the changes to this host, but for the kill switch.
    ReleaseHost,
    /// Looks peers' addresses and paths up again after sleep.
    LookAgain,

    /// Answers the tunnel once rules and kill switch follow the mark.
    FollowMark {
        /// Number of the question.
        id: u64,
        /// The mark, 0 for none; `None` if it stays.
        fwmark: Option<u32>,
    },
    /// Allows the tunnel any mark.
    AllowMark {
        /// Number of the question.
        id: u64,
        /// The mark, 0 for none; `None` if it stays.
        fwmark: Option<u32>,
    },
    /// Gives the process a moment to end, whose interface was deleted.
    ReplaceInterface,
    /// Notes why the process is about to end.
    NoteReason(String),
    /// Notes that the process is gone, and when to start another one.
    NoteDeath,
    /// Starts another process.
    StartAgain,
    /// Gives another process the configuration.
    ConfigureAgain,
    /// Waits for the end of the process; none is to follow.
    FinishTunnel,
}

/// A step on the way up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Looks for a tunnel that runs without a supervisor; ends with [`Event::Found`](crate::Event::Found).
    FindTunnel,
    /// Makes sure that nobody else has the interface; may end with
    /// [`Event::WgQuickHasIt`](crate::Event::WgQuickHasIt).
    FreeName,
    /// Closes the kill switch before there is a tunnel.
    CloseKillSwitch,
    /// Lets wg-quick take its tunnel down.
    TakeFromWgQuick,
    /// Runs the hooks that a killed tunnel left to be run. Their failure is no failure of the step.
    UndoHooks,
    /// Notes for the next supervisor that the tunnel comes up.
    NoteStart,
    /// Notes for the next supervisor that hooks may have run.
    NoteHooks,
    /// Runs hooks.
    Hooks(Moment),
    /// Makes the interface, and starts and configures a process for it.
    StartTunnel,
    /// Takes a running tunnel over, and gives it the configuration.
    TakeOver,
    /// Replaces the process of another version.
    ReplaceProcess,
    /// Changes the host, and waits a little for the endpoints' names.
    SetUpHost,
    /// Notes what hooks have changed in the tunnel.
    NoteChanges,
    /// Notes for the next supervisor that the tunnel is up.
    NoteUp,
    /// Removes the peer that is this machine itself.
    FindThisMachine,
    /// Tells the caller that the tunnel is up.
    TellCaller,

    /// Saves the running state, if the configuration wants that.
    Save,
    /// Notes for the next supervisor that the tunnel goes down.
    NoteEnd,
    /// Ends the process, whoever has started it.
    StopTunnel,
    /// Undoes the changes to the host, and removes the interface.
    UndoHost {
        /// Whether any kill switch stays.
        keeps_kill_switch: bool,
    },
    /// Removes the notes for the next supervisor.
    ForgetState,
    /// Opens the kill switch that was closed before there was a tunnel.
    OpenKillSwitch,
}

/// Moment at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before there is a tunnel.
    PreUp,
    /// Once packets pass.
    PostUp,
    /// Before the tunnel ends.
    PreDown,
    /// After the tunnel has ended.
    PostDown,
}

/// Reason to refuse a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A pause takes a second at least.
    NoTime,
    /// A pause takes [`LONGEST_PAUSE`](crate::LONGEST_PAUSE) at most.
    TooLong,
    /// The interface is in another network namespace.
    HasMoved,
    /// There is no pause to end.
    NotPaused,
    /// A tunnel without root changes nothing on its host.
    NothingToPause,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
