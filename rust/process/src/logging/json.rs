//! One JSON object per line: `time` (RFC 3339, UTC), `severity`, `message`, the fields of the spans around the event and
//! its own.

use std::{error::Error, fmt};

use jiff::Timestamp;
use serde::{
    Serialize,
    ser::{SerializeMap, Serializer as _},
};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::spans;

/// Formats an event as one line of JSON.
#[derive(Clone, Debug)]
pub(super) struct Json;

/// A line that was written for people.
pub(super) fn of_text(text: &str) -> String {
    let text = text.trim_end();
    let text = text.strip_prefix("convoy: ").unwrap_or(text);
    let (severity, message) = match text.strip_prefix("warning: ") {
        Some(message) => ("WARN", message),
        None => ("ERROR", text.strip_prefix("error: ").unwrap_or(text)),
    };
    let line = TextLine {
        time: format!("{:.6}", Timestamp::now()),
        severity,
        message,
    };
    // INVARIANT: a struct of strings is JSON.
    serde_json::to_string(&line).expect("strings are JSON")
}

#[derive(Serialize)]
struct TextLine<'a> {
    time: String,
    severity: &'a str,
    message: &'a str,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let around = spans::around(event, context.event_scope());
        let line = object(event, Timestamp::now(), &around).map_err(|_| fmt::Error)?;
        let line = String::from_utf8(line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

fn object(
    event: &Event<'_>,
    time: Timestamp,
    around: &[(&str, String)],
) -> serde_json::Result<Vec<u8>> {
    let mut message = Message::default();
    event.record(&mut message);

    let mut line = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::new(&mut line);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("time", &format_args!("{time:.6}"))?;
    map.serialize_entry("severity", event.metadata().level().as_str())?;
    map.serialize_entry("message", &message.0)?;
    map.serialize_entry("target", event.metadata().target())?;
    map.serialize_entry("thread", &std::thread::current().name())?;
    let mut fields = Fields {
        map,
        outcome: Ok(()),
    };
    for (name, value) in around {
        fields.entry(name, value);
    }
    event.record(&mut fields);
    fields.outcome?;
    fields.map.end()?;
    Ok(line)
}

/// Extracts the message, which precedes the fields and is an empty string if there is none.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Writes all fields except the message; numbers and booleans keep their types.
struct Fields<M: SerializeMap> {
    map: M,
    outcome: Result<(), M::Error>,
}

impl<M: SerializeMap> Fields<M> {
    fn entry(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        if self.outcome.is_err() || name == "message" {
            return;
        }
        self.outcome = match name {
            // A field must not pose as a key that every line has.
            name @ ("time" | "severity" | "target" | "thread") => {
                self.map.serialize_entry(&format!("field.{name}"), value)
            }
            name => self.map.serialize_entry(name, value),
        };
    }
}

impl<M: SerializeMap> Visit for Fields<M> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.entry(field.name(), &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.entry(field.name(), &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.entry(field.name(), &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.entry(field.name(), &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.entry(field.name(), &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.entry(field.name(), &format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;
    use tracing::{info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::{super::spans::Spans, *};

    #[test]
    fn every_line_has_a_time_a_severity_and_a_message() {
        let lines = logged(|| warn!("the link is down"));
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(line["message"], "the link is down");
        assert_eq!(line["severity"], "WARN");
        let time = line["time"].as_str().unwrap();
        time.parse::<Timestamp>().unwrap();
        assert!(time.ends_with('Z'), "{time}");
    }

    #[test]
    fn quotes_and_line_feeds_stay_within_one_line() {
        let lines = logged(|| {
            info!(name = "a \"quoted\"\nname\u{1b}[1m", "two\nlines");
            info!("next");
        });
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "two\nlines");
        assert_eq!(lines[0]["name"], "a \"quoted\"\nname\u{1b}[1m");
    }

    #[test]
    fn fields_keep_their_types() {
        let error = io::Error::other("broken");
        let lines = logged(|| {
            info!(
                batch = 50,
                gso = true,
                load = 0.5,
                error = &error as &dyn Error,
                peer = ?Some(1),
                "started",
            );
        });
        assert_eq!(lines[0]["batch"], 50);
        assert_eq!(lines[0]["gso"], true);
        assert_eq!(lines[0]["load"], 0.5);
        assert_eq!(lines[0]["error"], "broken");
        assert_eq!(lines[0]["peer"], "Some(1)");
    }

    #[test]
    fn an_event_without_a_message_has_an_empty_one() {
        let lines = logged(|| info!(batch = 50));
        assert_eq!(lines[0]["message"], "");
    }

    #[test]
    fn a_numeric_message_is_written_as_a_string() {
        let lines = logged(|| info!(message = 7));
        assert_eq!(lines[0]["message"], "7");
    }

    #[test]
    fn a_field_does_not_replace_a_key_that_every_line_has() {
        let lines = logged(|| info!(time = "noon", severity = "none", "ok"));
        assert_eq!(lines[0]["field.time"], "noon");
        assert_eq!(lines[0]["severity"], "INFO");
    }

    #[test]
    fn every_line_names_the_interface_and_the_peer_once() {
        let text = text_of(|| {
            let peer = |name| info_span!("peer", peer = name, time = "noon").entered();
            let _tunnel = spans::of_interface("wg0").entered();
            info!("of the tunnel");
            let _peer = peer("AAAA=");
            info!("of a peer");
            let _other = peer("BBBB=");
            info!("of another");
            info!(peer = "CCCC=", interface = "wg7", "of the event");
        });
        let all = [
            ("wg0", None),
            ("wg0", Some("AAAA=")),
            ("wg0", Some("BBBB=")),
            ("wg7", Some("CCCC=")),
        ];
        assert_eq!(text.lines().count(), all.len(), "{text}");
        for (line, (interface, peer)) in text.lines().zip(all) {
            for (name, count) in [("interface", 1), ("peer", usize::from(peer.is_some()))] {
                let key = format!("\"{name}\":");
                assert_eq!(line.matches(&key).count(), count, "{line}");
            }
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["interface"], interface);
            assert_eq!(line["peer"].as_str(), peer);
            assert_ne!(line["time"], "noon");
        }
    }

    #[test]
    fn a_line_for_people_becomes_an_object() {
        for (text, severity, message) in [
            (
                "convoy: wg0.conf is not valid",
                "ERROR",
                "wg0.conf is not valid",
            ),
            ("convoy: warning: a \"leak\"", "WARN", "a \"leak\""),
            (
                "error: unknown key\n --> wg0.conf\n",
                "ERROR",
                "unknown key\n --> wg0.conf",
            ),
            ("warning: no key", "WARN", "no key"),
        ] {
            let line = of_text(text);
            assert!(!line.contains('\n'), "{line}");
            let line: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (&line["severity"], &line["message"]),
                (&severity.into(), &message.into())
            );
            line["time"].as_str().unwrap().parse::<Timestamp>().unwrap();
        }
    }

    /// The lines that `events` logs.
    fn logged(events: impl FnOnce()) -> Vec<Value> {
        let text = text_of(events);
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn text_of(events: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(Json)
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(Spans).with(layer);
        tracing::subscriber::with_default(subscriber, events);
        let bytes = log.0.lock().unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
