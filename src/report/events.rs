//! The latest events.

use super::html::{Html, tag};
use super::plot::{Align, table};
use super::section::Section;
use super::units::moment;
use crate::server::sql;

/// The number of events on a page.
const MOST: i64 = 40;

const COLUMNS: &[(&str, Align)] =
    &[("When (UTC)", Align::Text), ("Of", Align::Text), ("What", Align::Words), ("Who", Align::Text)];

pub fn section() -> Section {
    let rows: Vec<Vec<Html>> =
        sql::read(include_str!("../../sql/report/events.sql"), &[MOST.into()], |row| {
            let text = |column| row.get::<String>(column).unwrap_or_default();
            vec![
                Html::text(moment(row.value(1))),
                Html::short_name(&text(2), 80),
                Html::short_name(&text(4), 300),
                Html::short_name(&text(3), 63),
            ]
        });
    let body = if rows.is_empty() {
        tag("p").class("quiet").say("Nothing has happened yet.").done()
    } else {
        table("Events of splits and routing, the latest first", COLUMNS, rows)
    };
    Section { id: "events", title: "Last events", body }
}
