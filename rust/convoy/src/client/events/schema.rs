//! The committed JSON Schema is that of the types.

use super::model::Event;
use crate::client::status::schema::{compare, schema_of};

#[test]
fn the_schema_of_the_events_is_the_committed_one() {
    compare("events", &schema_of::<Event>());
}
