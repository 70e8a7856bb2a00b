//! What the page is made of, and what it is told.

use super::html::Html;

/// One thing that `shard_status()` looks at.
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
