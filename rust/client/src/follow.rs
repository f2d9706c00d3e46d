//! `convoy events`: subscribes to the supervisors and prints their events.

mod text;
mod tunnel;

use std::{
    collections::HashMap,
    io::{self, Write as _},
    pin::pin,
    time::Duration,
};

use anyhow::{Context, bail};
use convoy_config::InterfaceName;
use convoy_daemon::places;
use convoy_process::{logging::say, message, print};
use convoy_supervision::{
    control::{Reply, Request},
    events::{Event, SCHEMA, What},
};
use jiff::tz::TimeZone;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    sync::mpsc,
    time::sleep,
};

use super::args::EventsArgs;
use text::Line;
use tunnel::Tunnel;

/// How often to look for supervisors.
const PAUSE: Duration = Duration::from_secs(1);

/// The most lines that wait to be printed; beyond that, the supervisors' queues fill.
const LINES: usize = 64;

/// Prints events until it is interrupted or its output is closed.
pub fn run(args: &EventsArgs) -> anyhow::Result<()> {
    if args.schema {
        return print(SCHEMA);
    }
    let name = args.name.as_deref().map(places::name_of).transpose()?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    runtime.block_on(Follower::new(args.json).run(name))
}

/// Follows the events of some tunnels.
struct Follower {
    tunnels: HashMap<InterfaceName, Followed>,
    is_json: bool,
    zone: TimeZone,
}

struct Followed {
    tunnel: Tunnel,
    /// Whether a task is looking for its supervisor or reading its events.
    is_read: bool,
    /// The last reason for waiting that was printed.
    said: Option<String>,
}

/// A report of a task.
#[derive(Debug)]
enum News {
    Connected,
    Line(String),
    Disconnected,
    /// There is no supervisor, or it refuses for now.
    Absent {
        why: String,
    },
    Failed(anyhow::Error),
}

/// Whether the output is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Read,
    Closed,
}

impl Follower {
    fn new(is_json: bool) -> Self {
        Self {
            tunnels: HashMap::new(),
            is_json,
            zone: TimeZone::system(),
        }
    }

    async fn run(mut self, name: Option<InterfaceName>) -> anyhow::Result<()> {
        let (sender, mut news) = mpsc::channel(LINES);
        // A tunnel that is not there at the first look comes up later.
        let mut first = Tunnel::Unknown;
        loop {
            let names = match &name {
                Some(name) => vec![name.clone()],
                None => places::all(),
            };
            for name in names {
                self.look_for(name, first, &sender);
            }
            first = Tunnel::Down;
            let mut pause = pin!(sleep(PAUSE));
            loop {
                let (from, told) = tokio::select! {
                    Some(told) = news.recv() => told,
                    () = &mut pause => break,
                };
                let is_asked_for = name.is_some();
                if self.hear(from, told, is_asked_for)? == Output::Closed {
                    return Ok(());
                }
            }
        }
    }

    fn look_for(
        &mut self,
        name: InterfaceName,
        first: Tunnel,
        news: &mpsc::Sender<(InterfaceName, News)>,
    ) {
        let followed = self.tunnels.entry(name.clone()).or_insert(Followed {
            tunnel: first,
            is_read: false,
            said: None,
        });
        if !followed.is_read {
            followed.is_read = true;
            tokio::spawn(subscribe(name, news.clone()));
        }
    }

    fn hear(
        &mut self,
        name: InterfaceName,
        news: News,
        is_asked_for: bool,
    ) -> anyhow::Result<Output> {
        let Some(followed) = self.tunnels.get_mut(&name) else {
            return Ok(Output::Read);
        };
        let tunnel = &mut followed.tunnel;
        let what = match news {
            News::Connected => {
                followed.said = None;
                tunnel.connected()
            }
            News::Line(text) => {
                let line: Line = serde_json::from_str(&text)
                    .with_context(|| format!("{name}: the supervisor's event is no event"))?;
                if line.event == "down" {
                    tunnel.goes_down();
                }
                return self.print(&text, &line);
            }
            News::Disconnected => {
                followed.is_read = false;
                tunnel.disconnected()
            }
            News::Absent { why } => {
                followed.is_read = false;
                if is_asked_for && followed.said.as_ref() != Some(&why) {
                    say(&format!("convoy: {name}: {why}; waiting"));
                    followed.said = Some(why);
                }
                tunnel.absent(places::has_remains(&name))
            }
            News::Failed(error) => return Err(error.context(name.to_string())),
        };
        match what {
            Some(what) => self.print_own(&name, what),
            None => Ok(Output::Read),
        }
    }

    fn print_own(&self, name: &InterfaceName, what: What) -> anyhow::Result<Output> {
        let text = serde_json::to_string(&Event::now(name.as_str(), what))?;
        let line = serde_json::from_str(&text)?;
        self.print(&text, &line)
    }

    fn print(&self, json: &str, line: &Line) -> anyhow::Result<Output> {
        let mut stdout = io::stdout().lock();
        let written = match self.is_json {
            true => writeln!(stdout, "{json}"),
            false => writeln!(stdout, "{}", text::render(line, &self.zone)),
        };
        match written.and_then(|()| stdout.flush()) {
            Ok(()) => Ok(Output::Read),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Output::Closed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Passes on the events of one tunnel until its supervisor ends.
async fn subscribe(name: InterfaceName, sender: mpsc::Sender<(InterfaceName, News)>) {
    let outcome = pass_on(&name, &sender).await;
    let last = outcome.unwrap_or_else(News::Failed);
    // The receiver lasts as long as the program.
    let _ = sender.send((name, last)).await;
}

/// Returns the last report.
async fn pass_on(
    name: &InterfaceName,
    sender: &mpsc::Sender<(InterfaceName, News)>,
) -> anyhow::Result<News> {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let absent = |why: &str| {
        let why = why.to_owned();
        Ok(News::Absent { why })
    };
    let mut stream = match UnixStream::connect(places::control(name)).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => {
            return absent("it is not up");
        }
        Err(error) if error.kind() == PermissionDenied => {
            bail!("cannot ask the supervisor: {error} (run as root)");
        }
        Err(error) => return Err(error).context("cannot ask the supervisor"),
    };
    let request = message::line_of(&Request::Subscribe)?;
    if stream.write_all(&request).await.is_err() {
        return absent("its supervisor has ended");
    }
    let mut lines = BufReader::new(stream).lines();
    let Ok(Some(reply)) = lines.next_line().await else {
        return absent("its supervisor has ended");
    };
    match serde_json::from_str(&reply) {
        Ok(Reply::Done { .. }) => {}
        Ok(Reply::Failed { reason }) => return absent(&reason),
        _ => bail!("the supervisor's answer is unexpected"),
    }
    sender.send((name.clone(), News::Connected)).await?;
    while let Ok(Some(line)) = lines.next_line().await {
        sender.send((name.clone(), News::Line(line))).await?;
    }
    Ok(News::Disconnected)
}
