//! Events in the life of a tunnel.

use std::time::SystemTime;

/// An event, with the facts that a decision about it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The step in hand is done; the user is to hear the notes.
    Done(Vec<String>),
    /// The step in hand failed.
    Failed {
        /// The failure, in words.
        reason: String,
        /// Whether a tunnel runs now and has its interface.
        tunnel_runs: bool,
    },
    /// Answer to [`Step::FindTunnel`](crate::Step::FindTunnel).
    Found(Found),
    /// Answer to [`Step::FreeName`](crate::Step::FreeName) if wg-quick has the interface, and may be made to give it up.
    WgQuickHasIt(KillSwitch),

    /// A client wants the tunnel down.
    Down,
    /// A signal wants the tunnel down.
    Signal(&'static str),
    /// Nobody is left who wants the tunnel.
    CallerLeft,
    /// A client wants a pause.
    Pause {
        /// Its length.
        seconds: u64,
    },
    /// A client wants the pause to end.
    Resume,
    /// A client wants something that changes no state.
    Request,
    /// A signal wants the files read again.
    Reload,
    /// A signal wants another version of the program in this one's place.
    Replace,

    /// Answer to [`Effect::Pause`](crate::Effect::Pause), if that succeeded.
    Paused {
        /// Its length.
        seconds: u64,
        /// Its end.
        until: SystemTime,
    },
    /// Answer to [`Effect::Resume`](crate::Effect::Resume), if that succeeded.
    Resumed,
    /// A pause has ended by itself.
    PauseOver,
    /// The interface has left this network namespace.
    InterfaceMoved,
    /// The interface was deleted.
    InterfaceDeleted(KillSwitch),
    /// The machine has woken up.
    WokeUp,

    /// The tunnel asks whether it may use another mark or port.
    MarkAsked {
        /// Number of the question.
        id: u64,
        /// The mark, 0 for none; `None` if it stays.
        fwmark: Option<u32>,
    },
    /// The tunnel's process says that it ends.
    TunnelEnds {
        /// Its reason.
        reason: String,
        /// The configuration's.
        kill_switch: KillSwitch,
    },
    /// The tunnel's process is gone.
    TunnelDied,
    /// It is time to start another process in place of a dead one.
    StartDue,
    /// Another process runs, and has no configuration yet.
    TunnelStarted,

    /// The last command inside has ended, and its data was delivered.
    Delivered,
    /// The network inside has ended.
    EngineEnded(String),
}

/// Remains of an earlier supervisor of this tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The process that runs without its supervisor.
    pub tunnel: Option<Former>,
    /// Whether a hook may have run.
    pub hooks_begun: bool,
    /// Whether the tunnel was brought up completely.
    pub is_up: bool,
}

/// Version of a tunnel that an earlier supervisor has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// The supervisor's own.
    SameVersion,
    /// An older or newer one: its process is replaced.
    OtherVersion,
}

/// Kill switch that the configuration wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillSwitch {
    /// None.
    #[default]
    Off,
    /// Closed while the tunnel is up.
    On,
    /// Closed until a user opens it.
    Persistent,
}

/// Facts at the start of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A tunnel that changes its host.
    Host {
        /// Whether the configuration has hooks.
        has_hooks: bool,
        /// Whether a kill switch is closed already. A start that fails does not open it.
        is_kill_switch_closed: bool,
    },
    /// A tunnel without root, which changes nothing outside its own processes.
    Rootless,
}

/// Remains of a tunnel that are to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Remains {
    /// Whether a hook may have run.
    pub hooks_begun: bool,
    /// Whether the tunnel was brought up completely.
    pub is_up: bool,
    /// Whether the configuration can be read; without it, no hook runs.
    pub has_config: bool,
    /// Whether any kill switch stays, since the tunnel is to come up again.
    pub keeps_kill_switch: bool,
    /// Whether a kill switch was closed before there was a tunnel.
    pub was_closed_early: bool,
}
