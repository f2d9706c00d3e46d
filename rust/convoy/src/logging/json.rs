//! One JSON object per line: `time` (RFC 3339, UTC), `severity`, `message` and the event's fields.

use std::{error::Error, fmt};

use jiff::Timestamp;
use serde::ser::{SerializeMap, Serializer as _};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Formats an event as one line of JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let line = object(event, Timestamp::now()).map_err(|_| fmt::Error)?;
        let line = String::from_utf8(line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

fn object(event: &Event<'_>, time: Timestamp) -> serde_json::Result<Vec<u8>> {
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
    fn entry(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if self.outcome.is_err() || field.name() == "message" {
            return;
        }
        self.outcome = match field.name() {
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
        self.entry(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.entry(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.entry(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.entry(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.entry(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.entry(field, &format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;
    use tracing::{info, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

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

    /// The lines that `events` logs.
    fn logged(events: impl FnOnce()) -> Vec<Value> {
        let log = Log::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(Json)
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, events);
        let bytes = log.0.lock().unwrap();
        let lines = std::str::from_utf8(&bytes).unwrap().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
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
