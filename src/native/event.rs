//! The events of triggers, and how a call is refused.

use crate::error::{self, Failure, SqlState};
use pgrx::prelude::*;

/// The event that a trigger was called for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NativeEvent {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl NativeEvent {
    pub fn of(event: u32) -> NativeEvent {
        match event & pg_sys::TRIGGER_EVENT_OPMASK {
            pg_sys::TRIGGER_EVENT_INSERT => NativeEvent::Insert,
            pg_sys::TRIGGER_EVENT_UPDATE => NativeEvent::Update,
            pg_sys::TRIGGER_EVENT_DELETE => NativeEvent::Delete,
            _ => NativeEvent::Truncate,
        }
    }

    /// Whether the trigger is of a kind that this extension creates: after a change of a row, or for TRUNCATE.
    pub fn suits(self, event: u32) -> bool {
        let is_of_row = event & pg_sys::TRIGGER_EVENT_ROW != 0;
        let is_after = event & pg_sys::TRIGGER_EVENT_TIMINGMASK == pg_sys::TRIGGER_EVENT_AFTER;
        is_after && is_of_row != (self == NativeEvent::Truncate)
    }

    pub fn letter(self) -> u8 {
        match self {
            NativeEvent::Insert => b'I',
            NativeEvent::Update => b'U',
            NativeEvent::Delete => b'D',
            NativeEvent::Truncate => b'T',
        }
    }
}

pub fn raise(message: impl Into<String>, hint: &str) -> ! {
    error::raise(Failure::new(SqlState::NOT_IN_STATE, message).hint(hint))
}
