//! `convoy` at the client.

use std::{fs, path::PathBuf, process::Command, sync::atomic::Ordering};

use super::{
    outcome::{Outcome, Running},
    world::World,
};
use crate::scene::convoy_program;

impl World {
    /// Runs `convoy` at the client until it returns.
    pub(super) fn convoy(&self, arguments: &[&str]) -> Outcome {
        self.start(arguments).wait()
    }

    /// Starts `convoy` at the client. What runs in the background logs to files.
    pub(super) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.client.command(convoy_program());
        command.args(arguments);
        command.env("LOG_LEVEL", "debug").env_remove("RUST_LOG");
        self.start_command(command)
    }

    /// Starts a command that runs `convoy`.
    pub(super) fn start_command(&self, mut command: Command) -> Running {
        command.env_remove("DBUS_SYSTEM_BUS_ADDRESS");
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let file = |kind| {
            let name = format!("{kind}-{number:03}");
            self.client.run_directory().join(name)
        };
        Running::start(command, file("out"), file("said"))
    }

    /// Runs `convoy` as a person does who has not asked for a log.
    pub(super) fn plainly(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.client.command(convoy_program());
        command.args(arguments);
        command.env_remove("LOG_LEVEL").env_remove("RUST_LOG");
        self.start_command(command).wait()
    }

    /// Prepares [`Self::as_nobody`]: gives somebody without rights a copy of the configuration, `/etc/wg0.conf`.
    pub(super) fn admit_nobody(&self) {
        // The program may lie where only root finds it.
        let program = convoy_program().display().to_string();
        self.shell(&format!(
            "cp /etc/wireguard/wg0.conf /etc/wg0.conf; chown 7777 /etc/wg0.conf
             touch /run/program; mount --bind '{program}' /run/program"
        ));
    }

    /// Runs `convoy` as somebody without rights; needs setpriv.
    pub(super) fn as_nobody(&self, arguments: &[&str]) -> Outcome {
        let mut nobody = self.client.command("setpriv");
        nobody.args(["--reuid=7777", "--regid=7777", "--clear-groups"]);
        nobody.args(["--inh-caps=-all", "/run/program"]);
        nobody.args(arguments);
        self.start_command(nobody).wait()
    }

    pub(super) fn up(&self) -> Outcome {
        self.convoy(&["up", "wg0"]).succeeds()
    }

    pub(super) fn down(&self) -> Outcome {
        self.convoy(&["down", "wg0"]).succeeds()
    }

    /// Everything that the client's commands and processes wrote.
    pub(super) fn log(&self) -> String {
        let files = fs::read_dir(self.client.run_directory()).unwrap().flatten();
        let mut paths: Vec<_> = files.map(|file| file.path()).collect();
        paths.sort();
        let is_log = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("out-") || name.starts_with("said-"))
        };
        let logs = paths.iter().filter(|path| is_log(path));
        logs.map(|path| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
            format!("--- {}\n{text}", path.display())
        })
        .collect()
    }
}
