//! The parts of the page, and its input.

use super::html::Html;

/// An item of `shard_status()`.
pub struct ReportItem {
    pub name: String,
    pub value: String,
    pub is_ok: bool,
}

/// A part of the page, with a heading of its own.
pub struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub body: Html,
}
