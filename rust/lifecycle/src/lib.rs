//! The life of one tunnel: decides which state follows an event, and what its supervisor has to do.
//!
//! ```text
//!                  ┌──▶ Paused ──┐
//!  ComingUp ───▶ Up ◀────────────┤
//!     │           └──▶ Moved ◀───┘
//!     │           any of them
//!     └──────▶ GoingDown ──▶ Down
//! ```
//!
//! 1. [`State::coming_up`], or [`State::going_down`] after a supervisor that died, returns the first effects.
//! 2. Perform effects in order. A [`Step`] ends with [`Event::Done`] or [`Event::Failed`], or with the answer that its
//!    documentation names.
//! 3. Without effects, wait for an event, and give it to [`State::on`].
//! 4. At [`Down`], nothing is left to do.
//!
//! The supervisors of `convoy` and `convoy down` drive it. It opens no socket or file, reads no clock, and knows no
//! configuration: events bring the facts that a decision needs.

mod coming_up;
mod down;
mod effect;
mod event;
mod going_down;
mod serving;
mod state;

pub use down::{Down, Ending, Interruption};
pub use effect::{Effect, Moment, Refusal, Step};
pub use event::{Event, Former, Found, KillSwitch, Remains, Start};
pub use serving::LONGEST_PAUSE;
pub use state::{ComingUp, GoingDown, Moved, Paused, Reaction, State, Up};
