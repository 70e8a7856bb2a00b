//! Shards: what leads to each, and how full it is.

use super::html::{Html, tag};
use super::plot::{Align, bar, left_out, table};
use super::routed::Routed;
use super::section::Section;
use super::units::{count, counted, percent};
use crate::placement::report::Capacity;

/// The number of shards on a page: the fullest ones.
const MOST: usize = 50;

const COLUMNS: &[(&str, Align)] = &[
    ("Shard", Align::Text),
    ("Kind", Align::Text),
    ("Status", Align::Text),
    ("Entries", Align::Number),
    ("Share of entries", Align::Bar),
    ("Slots in use", Align::Number),
    ("Capacity", Align::Number),
    ("How full", Align::Bar),
];

pub fn section(shards: &[Capacity], routed: &Routed) -> Section {
    let mut shown: Vec<&Capacity> = shards.iter().collect();
    // The fullest shards come first, then those with the most entries.
    shown.sort_by(|a, b| {
        let full = |shard: &Capacity| fullness(shard).unwrap_or(0.0);
        full(b)
            .total_cmp(&full(a))
            .then(routed.on(&b.shard_key).cmp(&routed.on(&a.shard_key)))
            .then_with(|| a.shard_key.cmp(&b.shard_key))
    });
    let most = shards.iter().map(|shard| routed.on(&shard.shard_key)).max().unwrap_or(0);
    let rows: Vec<Vec<Html>> = shown.iter().take(MOST).map(|shard| row(shard, routed, most)).collect();
    let mut body = tag("p").class("quiet").say(summary(shards)).done();
    if !rows.is_empty() {
        body.put(table("Shards, the fullest first", COLUMNS, rows));
        body.put(left_out(
            shown.len() as i64 - MOST as i64,
            "shard that is less full is",
            "shards that are less full are",
        ));
    }
    Section { id: "shards", title: "Shards", body }
}

/// Returns the used fraction of the capacity, or None if the shard has no capacity.
pub fn fullness(shard: &Capacity) -> Option<f64> {
    let capacity = shard.capacity? as f64;
    let used = (shard.leased + shard.confirmed) as f64;
    Some(if capacity > 0.0 { used / capacity } else { 1.0 })
}

fn row(shard: &Capacity, routed: &Routed, most: i64) -> Vec<Html> {
    let entries = routed.on(&shard.shard_key);
    let of_all = entries as f64 / routed.all().max(1) as f64;
    let measured = |parts: &[(&'static str, f64)], words: String| {
        [bar(parts), tag("span").class("of").say(words).done()].into_iter().collect()
    };
    let share = match entries {
        0 => Html::text("–"),
        _ => measured(&[("accent", entries as f64 / most.max(1) as f64)], percent(of_all * 100.0)),
    };
    let full = match fullness(shard) {
        Some(full) => {
            let part = |slots: i64| slots as f64 / shard.capacity.unwrap_or(0).max(1) as f64;
            let (held, leased) = if full >= 0.9 { ("warn", "warn-soft") } else { ("accent", "soft") };
            measured(&[(held, part(shard.confirmed)), (leased, part(shard.leased))], percent(full * 100.0))
        }
        None => tag("span").class("quiet").say("no limit").done(),
    };
    vec![
        Html::short_name(&shard.shard_key, 80),
        Html::short_name(&shard.kind, 40),
        status(&shard.status),
        Html::text(routed.about(count(entries))),
        share,
        Html::text(count(shard.leased + shard.confirmed)),
        Html::text(shard.capacity.map_or("–".to_owned(), count)),
        full,
    ]
}

fn status(status: &str) -> Html {
    let class = match status {
        "active" => "pill ok",
        "draining" => "pill warn",
        _ => "pill off",
    };
    tag("span").class(class).say(status).done()
}

fn summary(shards: &[Capacity]) -> String {
    if shards.is_empty() {
        return "There are none yet: shard_add() adds one.".to_owned();
    }
    let of = |status: &str| shards.iter().filter(|shard| shard.status == status).count() as i64;
    let others = ["draining", "disabled"].map(|status| (of(status), status));
    let others: Vec<String> = others
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, status)| format!("{} {status}", count(number)))
        .collect();
    let all = counted(shards.len() as i64, "shard", "shards");
    let rest = if others.is_empty() {
        "all active".to_owned()
    } else {
        format!("{} active, {}", count(of("active")), others.join(", "))
    };
    format!("{all}: {rest}. Entries are keys of a directory, buckets or ranges that are routed to a shard.")
}
