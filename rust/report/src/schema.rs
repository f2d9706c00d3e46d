//! JSON Schemas of the types, and the committed files that they must equal.

use std::path::Path;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use crate::golden;

/// Set to anything, this has [`compare`] write the files.
const UPDATE: &str = "CONVOY_UPDATE_SCHEMAS";

/// Returns the schema of what serializing a `T` gives.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Compares a schema with the committed file at `path`.
///
/// # Panics
/// If they differ, so that a test fails.
pub fn compare(path: &Path, schema: &Schema) {
    // INVARIANT: a schema is a JSON value.
    let generated = serde_json::to_string_pretty(schema).expect("JSON") + "\n";
    golden::compare(path, &generated, UPDATE);
}
