//! The port that a provider forwards through the tunnel, and the hooks that follow it.

use std::{fmt, future::pending};

use convoy_config::Config;
use convoy_portmap::{ForwardState, ForwardTarget, ForwardedPort, PortForwarding, withdraw_port};
use convoy_report::PortForwardStatus;
use convoy_supervision::Work;

use super::hooks::{HookError, Hooks};

/// The port, and its gateway if one is wanted.
#[derive(Debug, Default)]
pub(crate) struct PortForward {
    kept: Option<PortForwarding>,
    /// The port of an earlier supervisor, until a gateway is asked or none is configured.
    former: Option<ForwardedPort>,
    /// The port last announced.
    told: Option<ForwardedPort>,
    /// Reason why there is no longer a gateway to ask.
    ended: &'static str,
    /// The port that hooks were last run with; 0 for none.
    hooked: u16,
    hook: Option<Running>,
}

/// An event.
#[derive(Debug)]
pub(crate) enum Change {
    /// The gateway's answer has changed.
    Answer,
    /// The hooks have finished.
    HooksEnded(Result<(), HookError>),
}

/// An announcement about the port.
#[derive(Debug)]
pub(crate) enum News {
    Forwarded(ForwardedPort),
    /// Reason for the loss, in words.
    Lost(String),
}

/// Returns the gateway that the configuration names.
pub(crate) fn target(config: &Config) -> Option<ForwardTarget> {
    let gateway = config.interface.port_forward_gateway()?;
    Some(ForwardTarget {
        gateway,
        interface: config.name.as_str().to_owned(),
    })
}

impl PortForward {
    /// Records the port of an earlier supervisor, and the one that its hooks were last run with, if that is another.
    pub(crate) fn inherit(&mut self, former: Option<ForwardedPort>, of_hooks: Option<u16>) {
        self.hooked = of_hooks.unwrap_or_else(|| number(former.as_ref()));
        self.former = former;
    }

    /// Asks for a port: that of an earlier supervisor, if the gateway is the same.
    pub(crate) fn keep(&mut self, target: ForwardTarget) {
        if let Some(kept) = &self.kept
            && *kept.target() == target
        {
            return;
        }
        let former = self.former.take_if(|it| it.gateway == target.gateway);
        self.end("another gateway is to be asked");
        self.kept = Some(PortForwarding::begin(target, former));
    }

    /// Gives the port back, if there is one, and records the reason. Does not wait for the gateway.
    pub(crate) fn end(&mut self, why: &'static str) {
        let port = self.port().or(self.former.take());
        if self.kept.take().is_some() {
            self.ended = why;
        }
        if let Some(port) = port {
            tokio::spawn(async move { withdraw_port(&port).await });
        }
    }

    /// Asks again, since the gateway may have changed.
    pub(crate) fn ask_again(&self) {
        if let Some(kept) = &self.kept {
            kept.ask_again();
        }
    }

    /// Waits for the next change. May be cancelled.
    pub(crate) async fn changed(&mut self) -> Change {
        let (kept, hook) = (&mut self.kept, &mut self.hook);
        let answer = async {
            match kept {
                Some(kept) => kept.changed().await,
                None => pending().await,
            }
        };
        let outcome = async {
            match hook {
                Some(hook) => (&mut hook.0).await,
                None => pending().await,
            }
        };
        tokio::select! {
            outcome = outcome => {
                self.hook = None;
                Change::HooksEnded(outcome)
            }
            () = answer => Change::Answer,
        }
    }

    /// Returns the port, if there is one.
    pub(crate) fn port(&self) -> Option<ForwardedPort> {
        match self.state()? {
            ForwardState::Forwarded(port) => Some(port),
            ForwardState::Asking | ForwardState::Failed(_) => None,
        }
    }

    /// Returns the reason why the gateway has given no port, if it was asked.
    pub(crate) fn problem(&self) -> Option<String> {
        match self.state()? {
            ForwardState::Failed(problem) => Some(problem.to_string()),
            ForwardState::Asking | ForwardState::Forwarded(_) => None,
        }
    }

    /// Returns the next announcement for subscribers.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let port = self.port();
        if port == self.told {
            return None;
        }
        self.told.clone_from(&port);
        Some(match port {
            Some(port) => News::Forwarded(port),
            None => News::Lost(self.problem().unwrap_or_else(|| self.ended.to_owned())),
        })
    }

    /// Starts the hooks if the port is new to them. They run one after the other.
    pub(crate) fn run_hooks(&mut self, config: &Config) {
        let port = number(self.told.as_ref());
        let is_asked = matches!(self.state(), Some(ForwardState::Asking));
        if self.hook.is_some() || port == self.hooked || is_asked {
            return;
        }
        self.hooked = port;
        if !config.interface.post_port_forward.is_empty() {
            let hooks = Hooks::of_port(config, port);
            self.hook = Some(Running(Box::pin(hooks.run_beside())));
        }
    }

    /// Returns whether hooks are running.
    pub(crate) fn runs_hooks(&self) -> bool {
        self.hook.is_some()
    }

    /// Returns the port to record for another process in place of `noted`.
    pub(crate) fn to_note(&self, noted: Option<&ForwardedPort>) -> Option<ForwardedPort> {
        match self.state() {
            Some(ForwardState::Asking) => noted.cloned(),
            Some(_) => self.port(),
            None => self.former.clone(),
        }
    }

    /// Returns the port that hooks were last run with, 0 for none, if it is another than `noted`.
    pub(crate) fn of_hooks(&self, noted: Option<&ForwardedPort>) -> Option<u16> {
        Some(self.hooked).filter(|hooked| *hooked != number(noted))
    }

    /// Describes the port; `None` if none is wanted.
    pub(crate) fn status(&self) -> Option<PortForwardStatus> {
        let kept = self.kept.as_ref()?;
        let port = self.port();
        Some(PortForwardStatus {
            gateway: kept.target().gateway.to_string(),
            port: port.as_ref().map(|port| port.port),
            address: port.and_then(|port| port.address.map(|it| it.to_string())),
            problem: self.problem(),
        })
    }

    fn state(&self) -> Option<ForwardState> {
        self.kept.as_ref().map(PortForwarding::state)
    }
}

/// Returns the port for hooks: `None` if the configuration wants none, 0 if there is none yet.
pub(crate) fn for_hooks(config: &Config, port: Option<&ForwardedPort>) -> Option<u16> {
    let is_wanted = config.interface.port_forward.is_some();
    is_wanted.then(|| number(port))
}

/// The number of a port; 0 for none.
fn number(port: Option<&ForwardedPort>) -> u16 {
    port.map_or(0, |port| port.port)
}

/// Running hooks; dropping this kills them.
struct Running(Work<Result<(), HookError>>);

impl fmt::Debug for Running {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Running")
    }
}

#[cfg(test)]
mod tests;
