//! What needs attention according to `shard_status()`, and what is in order.

use super::html::{Html, tag};
use super::plot::left_out;
use super::section::{ReportItem, Section};

/// The greatest number of items of each kind; a master with many splits has many.
const MOST: usize = 60;

pub fn section(standing: &[ReportItem]) -> Section {
    let (good, bad): (Vec<&ReportItem>, Vec<&ReportItem>) = standing.iter().partition(|item| item.is_ok);
    let mut body = if bad.is_empty() {
        tag("p").class("well").say("Nothing needs attention.").done()
    } else {
        list("bad", &bad)
    };
    let summary = tag("summary").say(format!("In order: {}", good.len())).done();
    body.put(tag("details").put(summary).put(list("good", &good)).done());
    Section { id: "attention", title: "What needs attention", body }
}

fn list(class: &'static str, items: &[&ReportItem]) -> Html {
    let row = |item: &&ReportItem| {
        let name = tag("dt").put(Html::name(&item.name)).done();
        [name, tag("dd").put(Html::short_name(&item.value, 600)).done()].into_iter().collect::<Html>()
    };
    let mut html = tag("dl").class(class).put(items.iter().take(MOST).map(row).collect()).done();
    html.put(left_out(items.len() as i64 - MOST as i64, "more is", "more are"));
    html
}
