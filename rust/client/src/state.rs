//! Facts for taking a tunnel down after its supervisor has died: `/run/convoy/NAME.state`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use convoy_config::InterfaceName;
use convoy_daemon::places;
use convoy_path_mtu::NotedPath;
use convoy_portmap::{ForwardedPort, Mapping, Protocol};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use tracing::warn;

/// Version of the format.
const VERSION: u32 = 1;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The state of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// The configuration's absolute path.
    pub(crate) config: PathBuf,
    /// The supervisor's process.
    pub(crate) supervisor: u32,
    /// When the tunnel came up, in seconds since 1970.
    pub(crate) since: u64,
    /// Whether a hook may have run.
    pub(crate) hooks_begun: bool,
    /// Whether the tunnel was brought up completely.
    pub(crate) is_up: bool,
    /// The paths that carry too little.
    #[serde(default, deserialize_with = "known_paths")]
    pub(crate) paths: Vec<NotedPath>,
    /// When a pause ends, in seconds since 1970.
    #[serde(default)]
    pub(crate) paused_until: Option<u64>,
    /// The port that the router forwards by a protocol that all versions know.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    port_mapping: Option<Mapping>,
    /// The port that it forwards by UPnP. In the field above, it would make earlier versions refuse the whole state.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    upnp_mapping: Option<Mapping>,
    /// The port that a provider forwards through the tunnel.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known"
    )]
    pub(crate) port_forward: Option<ForwardedPort>,
    /// The port that hooks were last run with, 0 for none; `None` if it is the one above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_of_hooks: Option<u16>,
    /// Interface name of the outer tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<String>,
}

impl State {
    /// The state before anything has been done.
    pub(crate) fn new(config: &Path, now: u64) -> Self {
        Self {
            version: VERSION,
            config: config.to_owned(),
            supervisor: std::process::id(),
            since: now,
            hooks_begun: false,
            is_up: false,
            paths: Vec::new(),
            paused_until: None,
            port_mapping: None,
            upnp_mapping: None,
            port_forward: None,
            port_of_hooks: None,
            via: None,
        }
    }

    /// Returns the port that the router forwards.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        self.port_mapping.as_ref().or(self.upnp_mapping.as_ref())
    }

    /// Records the port that the router forwards.
    pub(crate) fn note_mapping(&mut self, mapping: Option<Mapping>) {
        let is_by_upnp = |it: &Mapping| it.protocol == Protocol::Upnp;
        (self.upnp_mapping, self.port_mapping) = match mapping {
            Some(mapping) if is_by_upnp(&mapping) => (Some(mapping), None),
            mapping => (None, mapping),
        };
    }

    /// Returns the tunnel that goes through `name`, if any does.
    pub(crate) fn going_through(name: &InterfaceName) -> Option<InterfaceName> {
        let directory = places::state(name).parent()?.to_owned();
        let files = fs::read_dir(directory).ok()?.filter_map(Result::ok);
        let states = files.filter_map(|file| {
            let name = file.file_name();
            let name: InterfaceName = name.to_str()?.strip_suffix(".state")?.parse().ok()?;
            Some((read(&file.path()).ok()??, name))
        });
        let mut through = states.filter(|(state, _)| state.via.as_deref() == Some(name.as_str()));
        through.next().map(|(_, inner)| inner)
    }

    /// Reads the state that an interface's supervisor left; `None` if there is none.
    pub(crate) fn read(name: &InterfaceName) -> Option<Self> {
        let path = places::state(name);
        match read(&path) {
            Ok(state) => state,
            Err(error) => {
                warn!("{error:#}; continuing without it");
                None
            }
        }
    }

    /// Replaces the file atomically. Call it only while holding the interface's lock.
    pub(crate) fn write(&self, name: &InterfaceName) -> anyhow::Result<()> {
        write(&places::state(name), self)
    }

    /// Records that the tunnel is going down: from now on, the effects of `PostUp` are being undone.
    pub(crate) fn note_end(name: &InterfaceName) -> anyhow::Result<()> {
        let Some(state) = Self::read(name) else {
            return Ok(());
        };
        let ending = Self {
            hooks_begun: true,
            is_up: false,
            ..state
        };
        ending.write(name)
    }

    /// Removes the file, and any unfinished replacement that a crash left. The file goes last: as long as it exists,
    /// taking the tunnel down finds the rest.
    pub(crate) fn remove(name: &InterfaceName) {
        let path = places::state(name);
        let given = places::given(name);
        for path in [beside(&given), given, beside(&path), path] {
            // It may never have been written.
            let _ = fs::remove_file(path);
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Option<State>> {
    let context = || format!("cannot read {}", path.display());
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(context)?,
    };
    let mut text = String::new();
    let mut bounded = file.take(MAX_BYTES);
    bounded.read_to_string(&mut text).with_context(context)?;
    let state: State = serde_json::from_str(&text).with_context(context)?;
    if state.version != VERSION {
        let version = state.version;
        bail!("{}: version {version} is not {VERSION}", path.display());
    }
    Ok(Some(state))
}

fn write(path: &Path, state: &State) -> anyhow::Result<()> {
    replace(path, &serde_json::to_vec(state)?)
}

/// Reads a field that a later version may write differently. If so, it counts as absent and the rest remains usable.
fn known<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads the paths likewise: each that is written differently counts as absent.
fn known_paths<'de, D>(deserializer: D) -> Result<Vec<NotedPath>, D::Error>
where
    D: Deserializer<'de>,
{
    let all: Option<Vec<serde_json::Value>> = known(deserializer)?;
    let known = |path| serde_json::from_value(path).ok();
    Ok(all.into_iter().flatten().filter_map(known).collect())
}

/// Replaces a file that only its owner may read, atomically.
pub(crate) fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        let new = beside(path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(content)?;
        fs::rename(new, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// Path of the new file until it is complete: fixed, so that a remainder of a crash can be found.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-new");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_state_that_is_written_is_read_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.state");
        assert_eq!(read(&path).unwrap(), None);
        let mut state = State::new(Path::new("/etc/wireguard/wg0.conf"), 7);
        write(&path, &state).unwrap();
        state.is_up = true;
        // As a crash may leave it.
        fs::rename(&path, beside(&path)).unwrap();
        write(&path, &state).unwrap();
        assert_eq!(read(&path).unwrap(), Some(state));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn a_state_passes_between_this_version_and_earlier_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.state");
        let mut expected = State {
            supervisor: 42,
            hooks_begun: true,
            is_up: true,
            ..State::new(Path::new("/etc/wireguard/wg0.conf"), 7)
        };
        // As earlier versions wrote it, before and after paths and pauses were added.
        let former = r#"{"version":1,"config":"/etc/wireguard/wg0.conf","supervisor":42,"since":7,"hooks_begun":true,"is_up":true}"#;
        fs::write(&path, former).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected.clone()));
        expected.paused_until = Some(60);
        let former = former.replace('}', r#","paths":[],"paused_until":60}"#);
        assert_eq!(serde_json::to_string(&expected).unwrap(), former);
        fs::write(&path, &former).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected.clone()));
        let mapping = r#"{"protocol":"PCP","router":"192.168.0.1","interface":"eth0","mark":null,"port":51820,"external":"198.51.100.7:51820","nonce":[7,7,7,7,7,7,7,7,7,7,7,7]}"#;
        expected.port_mapping = Some(serde_json::from_str(mapping).unwrap());
        let present = former.replace("60}", &format!(r#"60,"port_mapping":{mapping}}}"#));
        assert_eq!(serde_json::to_string(&expected).unwrap(), present);
        fs::write(&path, present).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected.clone()));
        // By UPnP, which earlier versions ignore.
        let mut upnp = expected.mapping().cloned().unwrap();
        upnp.protocol = Protocol::Upnp;
        expected.note_mapping(Some(upnp));
        let written = serde_json::to_value(&expected).unwrap();
        assert!(written.get("port_mapping").is_none(), "{written}");
        write(&path, &expected).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected.clone()));
        // As later ones may write it.
        expected.note_mapping(None);
        expected.port_of_hooks = Some(4000);
        write(&path, &expected).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected.clone()));
        expected.port_of_hooks = None;
        let later = former.replace(
            "60}",
            r#"60,"port_mapping":{"protocol":"NEW"},"port_forward":[1],"new":{}}"#,
        );
        fs::write(&path, later).unwrap();
        assert_eq!(read(&path).unwrap(), Some(expected));
    }

    #[test]
    fn a_path_of_a_later_version_leaves_the_rest_of_the_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.state");
        let key = "A".repeat(43) + "=";
        let noted = |way: &str| -> serde_json::Value {
            let narrow = serde_json::json!({"target": "10.9.0.1", "largest": 1300});
            serde_json::json!({"peer": key, "endpoints": 7, "way": way, "narrow": narrow})
        };
        let known: NotedPath = serde_json::from_value(noted("relay")).unwrap();
        let state = State::new(Path::new("/etc/wireguard/wg0.conf"), 7);
        let read_with = |paths: serde_json::Value| {
            let mut written = serde_json::to_value(&state).unwrap();
            written["paths"] = paths;
            fs::write(&path, written.to_string()).unwrap();
            read(&path).unwrap()
        };
        let paths = serde_json::json!([noted("later"), noted("relay"), 7]);
        let mut expected = state.clone();
        assert_eq!(read_with("later".into()), Some(expected.clone()));
        expected.paths = vec![known];
        assert_eq!(read_with(paths), Some(expected));
    }

    #[test]
    fn a_file_that_is_no_state_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.state");
        let other = State {
            version: 2,
            ..State::new(&path, 7)
        };
        let other = serde_json::to_string(&other).unwrap();
        let long = format!("{}{{}}", " ".repeat(MAX_BYTES as usize));
        for text in ["", "{}", "\u{0}", &other, &long] {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err();
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        read(&path).unwrap_err();
    }
}
