//! Keyspaces: how each is spread, over which tables.

use super::html::{Html, tag};
use super::plot::{Align, left_out, table};
use super::routed::Routed;
use super::section::Section;
use super::units::{count, moment};
use crate::server::sql;

/// The number of keyspaces on a page: those that have changed last.
const MOST: i64 = 50;

const COLUMNS: &[(&str, Align)] = &[
    ("Keyspace", Align::Text),
    ("Strategy", Align::Text),
    ("Key", Align::Text),
    ("Tables", Align::Words),
    ("Entries", Align::Number),
    ("Version", Align::Number),
    ("Last change (UTC)", Align::Number),
];

struct KeyspaceReport {
    name: String,
    strategy: String,
    buckets: Option<i32>,
    key_type: String,
    tables: (Vec<String>, i64),
    version: i64,
    changed: Option<f64>,
    of_all: i64,
}

pub fn section(routed: &Routed) -> Section {
    let keyspaces =
        sql::read(include_str!("../../sql/report/keyspaces.sql"), &[MOST.into()], |row| KeyspaceReport {
            name: row.value(1),
            strategy: row.value(2),
            buckets: row.get(3),
            key_type: row.value(4),
            tables: (row.value(5), row.value(6)),
            version: row.value(7),
            changed: row.get(8),
            of_all: row.value(9),
        });
    let all = keyspaces.first().map_or(0, |keyspace| keyspace.of_all);
    let rows = keyspaces.iter().map(|keyspace| line(keyspace, routed)).collect();
    let mut body = table("Keyspaces, the latest change first", COLUMNS, rows);
    body.put(left_out(all - MOST, "keyspace is", "keyspaces are"));
    Section { id: "keyspaces", title: "Keyspaces", body }
}

fn line(keyspace: &KeyspaceReport, routed: &Routed) -> Vec<Html> {
    let strategy = match keyspace.buckets {
        Some(buckets) => format!("{}, {} buckets", keyspace.strategy, count(i64::from(buckets))),
        None => keyspace.strategy.clone(),
    };
    vec![
        Html::short_name(&keyspace.name, 80),
        Html::text(strategy),
        Html::short_name(&keyspace.key_type, 40),
        tables(&keyspace.tables),
        Html::text(routed.about(count(routed.of(&keyspace.name)))),
        Html::text(count(keyspace.version)),
        Html::text(keyspace.changed.map_or("–".to_owned(), moment)),
    ]
}

fn tables((names, all): &(Vec<String>, i64)) -> Html {
    if names.is_empty() {
        return tag("span").class("quiet").say("none").done();
    }
    let mut html = Html::default();
    for (at, name) in names.iter().enumerate() {
        html.put(Html::fixed(if at > 0 { ", " } else { "" }));
        html.put(Html::short_name(name, 80));
    }
    if *all > names.len() as i64 {
        html.put(Html::text(format!(" and {} more", count(all - names.len() as i64))));
    }
    html
}
