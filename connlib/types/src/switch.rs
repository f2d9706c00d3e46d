//! Switches of features that a kernel may lack.

/// Whether a feature of the kernel is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Switch {
    /// Used if the kernel has it.
    #[default]
    Auto,
    /// Used; starting fails if the kernel lacks it.
    On,
    /// Not used.
    Off,
}

impl Switch {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// Returns the state's name, as on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
