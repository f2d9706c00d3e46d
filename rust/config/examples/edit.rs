//! Reads a configuration, changes its MTU and prints it as `SaveConfig` would save it.
//!
//! `cargo run -p convoy-config --example edit -- /etc/wireguard/wg0.conf 1380`

use std::{env, path::Path, process::ExitCode};

use convoy_config::{Located, read, to_wg_quick};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let (Some(path), Some(Ok(mtu))) = (args.next(), args.next().map(|it| it.parse())) else {
        eprintln!("usage: edit FILE MTU");
        return ExitCode::FAILURE;
    };
    let loaded = match read(Path::new(&path)) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprint!("{}", report.render(false));
            return ExitCode::FAILURE;
        }
    };
    eprint!("{}", loaded.warnings.render(false));
    let mut config = loaded.config;
    config.interface.mtu = Some(Located::nowhere(mtu));
    print!("{}", *to_wg_quick(&config));
    ExitCode::SUCCESS
}
