//! Follows the port that a provider forwards through the tunnel.

use tracing::{info, warn};

use super::Supervisor;
use crate::port_forward::{Change, News, target};

impl Supervisor {
    /// Starts or stops asking for a port, as the configuration says, and announces the outcome. Waits for neither
    /// gateway nor hooks.
    pub(super) fn follow_port_forward(&mut self) {
        match target(&self.config) {
            Some(target) => self.port_forward.keep(target),
            None => self
                .port_forward
                .end("the configuration wants none any more"),
        }
        match self.port_forward.take_news() {
            Some(News::Forwarded(port)) => {
                info!("The provider forwards the port {}", port.port);
                self.events.port_forwarded(&port);
            }
            Some(News::Lost(why)) => {
                warn!("The provider forwards no port any more: {why}");
                self.events.port_lost(why);
            }
            None => {}
        }
        self.port_forward.run_hooks(&self.config);
        let port = self.port_forward.to_note(self.state.port_forward.as_ref());
        let of_hooks = self.port_forward.of_hooks(port.as_ref());
        if (&port, of_hooks) != (&self.state.port_forward, self.state.port_of_hooks) {
            self.state.port_forward = port;
            self.state.port_of_hooks = of_hooks;
            if let Err(error) = self.state.write(&self.config.name) {
                warn!("{error:#}");
            }
        }
    }

    /// Logs a change and passes it on.
    pub(super) fn on_port_forward(&mut self, change: Change) {
        match change {
            Change::HooksEnded(Err(error)) => warn!("{error}"),
            Change::HooksEnded(Ok(())) => {}
            Change::Answer => {
                if let Some(problem) = self.port_forward.problem() {
                    warn!("The provider forwards no port: {problem}");
                }
            }
        }
    }
}
