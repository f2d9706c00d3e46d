//! The committed JSON Schema is that of the types.

use std::path::Path;

use convoy_report::schema::{compare, schema_of};

use super::model::Event;

#[test]
fn the_schema_of_the_events_is_the_committed_one() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = manifest.join("schema/events.schema.json");
    compare(&path, &schema_of::<Event>());
}
