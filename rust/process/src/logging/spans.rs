//! The spans that an event is in: of the interface, and of the peer that it concerns.
//!
//! A thread enters the interface's span once, when it starts; that of a peer exists only while something is done for it
//! that is seldom done. No packet enters a span.

use std::fmt;

use tracing::{
    Event, Span, Subscriber, error_span,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, Scope},
};

/// The target of [`of_interface`]: a filter lets it through whatever it asks for, as its level may change later.
pub(super) const TARGET: &str = "convoy::interface";

/// A span that names the interface.
pub(super) fn of_interface(interface: &str) -> Span {
    error_span!(target: TARGET, "tunnel", %interface)
}

/// Keeps the fields of all spans.
#[derive(Debug)]
pub(super) struct Spans;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }
}

/// The fields of the spans around an event, from the outside in. Each name stands here once, as the innermost span has
/// it, and not if the event has it, too.
pub(super) fn around<S>(
    event: &Event<'_>,
    scope: Option<Scope<'_, S>>,
) -> Vec<(&'static str, String)>
where
    S: for<'a> LookupSpan<'a>,
{
    let mut all: Vec<(&str, String)> = Vec::new();
    for span in scope.into_iter().flatten() {
        let extensions = span.extensions();
        let fields = extensions.get::<Fields>().map_or(&[][..], |it| &it.0);
        for (name, value) in fields.iter().rev() {
            let is_of_event = event.metadata().fields().field(name).is_some();
            if !is_of_event && all.iter().all(|(other, _)| other != name) {
                all.push((name, value.clone()));
            }
        }
    }
    all.reverse();
    all
}

/// Names and values.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, String)>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
