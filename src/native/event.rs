//! What triggers are called for, and how a call is refused.

use crate::error::{Failure, SqlState};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// What a trigger was called for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl Event {
    pub fn of(event: u32) -> Event {
        match event & pg_sys::TRIGGER_EVENT_OPMASK {
            pg_sys::TRIGGER_EVENT_INSERT => Event::Insert,
            pg_sys::TRIGGER_EVENT_UPDATE => Event::Update,
            pg_sys::TRIGGER_EVENT_DELETE => Event::Delete,
            _ => Event::Truncate,
        }
    }

    /// Whether a trigger is one that is made here: behind a change of a row, or for TRUNCATE.
    pub fn suits(self, event: u32) -> bool {
        let is_of_row = event & pg_sys::TRIGGER_EVENT_ROW != 0;
        let is_after = event & pg_sys::TRIGGER_EVENT_TIMINGMASK == pg_sys::TRIGGER_EVENT_AFTER;
        is_after && is_of_row != (self == Event::Truncate)
    }

    pub fn letter(self) -> u8 {
        match self {
            Event::Insert => b'I',
            Event::Update => b'U',
            Event::Delete => b'D',
            Event::Truncate => b'T',
        }
    }
}

pub fn raise(message: impl Into<String>, hint: &str) -> ! {
    let failure = Failure::new(SqlState::NOT_IN_STATE, message.into()).hint(hint);
    ErrorReport::from(failure).report(PgLogLevel::ERROR);
    unreachable!("an error was raised")
}
