//! The committed JSON Schemas are those of the types.

use std::{env, fs, path::PathBuf};

use schemars::{Schema, generate::SchemaSettings};

use super::model::Statuses;

/// Set to anything, this has the test write the files.
const UPDATE: &str = "CONVOY_UPDATE_SCHEMAS";

#[test]
fn the_schema_of_the_status_is_the_committed_one() {
    compare("status", &schema_of::<Statuses>());
}

pub(crate) fn schema_of<T: schemars::JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

pub(crate) fn compare(name: &str, schema: &Schema) {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = manifest.join(format!("schema/{name}.schema.json"));
    let generated = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if env::var_os(UPDATE).is_some() {
        return fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} differs from the types: run this test with {UPDATE}=1, and note the change for users in CHANGELOG.md",
        path.display()
    );
}
