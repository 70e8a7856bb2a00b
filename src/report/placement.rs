//! Placement: the slots of each kind of shard.

use super::html::{Html, tag};
use super::plot::{Align, bar, left_out, table};
use super::section::Section;
use super::units::{count, percent};
use crate::placement::report::Capacity;
use std::collections::BTreeMap;

/// The number of kinds on a page.
const MOST: usize = 50;

const COLUMNS: &[(&str, Align)] = &[
    ("Kind", Align::Text),
    ("Shards", Align::Number),
    ("Capacity", Align::Number),
    ("Confirmed", Align::Number),
    ("Leased", Align::Number),
    ("Still available", Align::Number),
    ("In use", Align::Bar),
];

#[derive(Default)]
struct KindReport {
    shards: i64,
    /// `None` if one of them is unlimited.
    capacity: Option<i64>,
    confirmed: i64,
    leased: i64,
    available: Option<i64>,
}

pub fn section(shards: &[Capacity]) -> Section {
    let mut kinds: BTreeMap<&str, KindReport> = BTreeMap::new();
    for shard in shards {
        let kind = kinds.entry(&shard.kind).or_insert(KindReport {
            capacity: Some(0),
            available: Some(0),
            ..KindReport::default()
        });
        let takes = if shard.status == "active" { shard.available } else { Some(0) };
        kind.shards += 1;
        kind.capacity = kind.capacity.zip(shard.capacity).map(|(a, b)| a.saturating_add(b));
        kind.available = kind.available.zip(takes).map(|(a, b)| a.saturating_add(b));
        kind.confirmed += shard.confirmed;
        kind.leased += shard.leased;
    }
    let body = if kinds.is_empty() {
        tag("p").class("quiet").say("There are no shards to place anything on.").done()
    } else {
        let left = kinds.len() as i64 - MOST as i64;
        let rows = kinds.iter().take(MOST).map(|(name, kind)| line(name, kind)).collect();
        let mut body = table("Slots by the kind of their shards", COLUMNS, rows);
        body.put(left_out(left, "kind is", "kinds are"));
        body
    };
    Section { id: "placement", title: "Placement", body }
}

fn line(name: &str, kind: &KindReport) -> Vec<Html> {
    let number = |value: Option<i64>| match value {
        Some(value) => Html::text(count(value)),
        None => tag("span").class("quiet").say("no limit").done(),
    };
    let used = match kind.capacity {
        Some(capacity) => {
            let part = |slots: i64| slots as f64 / capacity.max(1) as f64;
            let words = percent(part(kind.confirmed + kind.leased) * 100.0);
            let bar = bar(&[("accent", part(kind.confirmed)), ("soft", part(kind.leased))]);
            [bar, tag("span").class("of").say(words).done()].into_iter().collect()
        }
        None => Html::text("–"),
    };
    vec![
        Html::short_name(name, 80),
        Html::text(count(kind.shards)),
        number(kind.capacity),
        Html::text(count(kind.confirmed)),
        Html::text(count(kind.leased)),
        number(kind.available),
        used,
    ]
}
