//! `convoy status --watch`: the state as it changes, on a terminal.
//!
//! ```text
//!  a thread that looks each second ─┐
//!                                   ├─ Happening ─▶ this thread draws
//!  a thread that reads the keys ────┘
//! ```
//! A tunnel that does not answer holds up neither the keys nor the screen.

mod batches;
mod draw;
mod peers;
mod screen;

use std::{
    io::{self, IsTerminal as _},
    sync::mpsc::{self, SyncSender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

pub use screen::Looked;
use screen::Screen;

/// How often to look.
const PERIOD: Duration = Duration::from_secs(1);

/// Happenings that wait to be drawn; the threads wait if there is more.
const QUEUE: usize = 16;

/// Shows the tunnels that `look` finds, until somebody quits.
pub fn run(look: impl Fn() -> Looked + Send + 'static) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        bail!("--watch needs a terminal; use --json");
    }
    let (sender, happenings) = mpsc::sync_channel(QUEUE);
    let mut screen = Screen::default();
    screen.look(look(), Instant::now());
    let quit = sender.clone();
    ctrlc::set_handler(move || drop(quit.send(Happening::Ended)))
        .context("cannot wait for signals")?;

    // It also gives the terminal back if the program panics.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let keys = sender.clone();
    thread::spawn(move || read_keys(&keys));
    thread::spawn(move || keep_looking(look, &sender));
    let outcome = loop {
        let draw = |frame: &mut ratatui::Frame<'_>| {
            draw::draw(frame, &mut screen, jiff::Timestamp::now());
        };
        if let Err(error) = terminal.draw(draw) {
            break Err(error).context("cannot draw");
        }
        match happenings.recv() {
            Ok(Happening::Looked(looked, at)) => screen.look(looked, at),
            Ok(Happening::Key(key)) if is_quit(key) => break Ok(()),
            Ok(Happening::Key(key)) => press(&mut screen, key.code),
            Ok(Happening::Resized) => {}
            Ok(Happening::Ended) | Err(_) => break Ok(()),
        }
    };
    ratatui::restore();
    outcome
}

/// An event that the screen reacts to.
enum Happening {
    Looked(Looked, Instant),
    Key(KeyEvent),
    Resized,
    /// By a signal, or because the terminal is gone.
    Ended,
}

fn keep_looking(look: impl Fn() -> Looked, sender: &SyncSender<Happening>) {
    loop {
        thread::sleep(PERIOD);
        let looked = Happening::Looked(look(), Instant::now());
        if sender.send(looked).is_err() {
            return;
        }
    }
}

fn read_keys(sender: &SyncSender<Happening>) {
    loop {
        let happening = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Happening::Key(key),
            Ok(Event::Resize(..)) => Happening::Resized,
            Ok(_) => continue,
            Err(_) => Happening::Ended,
        };
        let is_last = matches!(happening, Happening::Ended);
        if sender.send(happening).is_err() || is_last {
            return;
        }
    }
}

fn is_quit(key: KeyEvent) -> bool {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
        && matches!(key.code, KeyCode::Char('c' | 'd'));
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn press(screen: &mut Screen, key: KeyCode) {
    match key {
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => screen.next_tunnel(),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => screen.previous_tunnel(),
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => screen.scroll(10),
        KeyCode::PageUp => screen.scroll(-10),
        KeyCode::Home => screen.scroll(isize::MIN),
        KeyCode::End => screen.scroll(isize::MAX),
        _ => {}
    }
}
