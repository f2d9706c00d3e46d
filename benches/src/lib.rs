//! One bench a stage.
