//! Pages of HTML for people: `shard_report()` shows the master, `shard_survey_report()` a database. A page contains its style, and loads nothing: no script,
//! no font, no picture. What grows with the number of shards, keys or splits is summed up or cut, with a note.

mod attention;
mod events;
mod html;
mod keyspaces;
mod placement;
mod plot;
mod routed;
pub mod section;
mod shards;
mod splits;
pub mod survey;
mod timeline;
mod units;

use crate::placement::report;
use crate::server::{database, sql};
use html::{Html, tag};
use placement as slots;
use routed::Routed;
use section::{ReportItem, Section};

const STYLE: &str = include_str!("style.css");

/// Returns the whole page.
pub fn page(standing: &[ReportItem]) -> String {
    let now: f64 =
        sql::read_one("SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8", &[], |row| {
            row.value(1)
        })
        .unwrap_or(0.0);
    let routed = Routed::count();
    let shards = report::capacity(None);
    let tiles = tiles(standing, shards.len() as i64, &routed);
    let sections = [
        attention::section(standing),
        shards::section(&shards, &routed),
        keyspaces::section(&routed),
        splits::section(now),
        slots::section(&shards),
        events::section(),
    ];
    let title = tag("h1").say("shardmaster ").put(Html::name(&database::name())).done();
    let version = env!("CARGO_PKG_VERSION");
    let at = tag("p").class("quiet").say(format!("As of {} UTC, version {version}", units::moment(now)));
    let heading = tag("header").put(title).put(at.done()).done();
    assemble(
        heading,
        tiles,
        sections.into(),
        "Made by shard_report() from what this master knows, and from what the sources of running splits answered within a second. Times are in UTC. shard_top() asks shards for their largest tenants.",
    )
}

/// Puts a page together.
fn assemble(heading: Html, tiles: Html, sections: Vec<Section>, foot: &'static str) -> String {
    let way = |section: &Section| {
        tag("li").put(tag("a").with("href", format!("#{}", section.id)).say(section.title).done()).done()
    };
    let ways = tag("ul").put(sections.iter().map(way).collect()).done();
    let nav = tag("nav").with("aria-label", "Sections").put(ways).done();
    let main = tag("main").put(tiles).put(sections.into_iter().map(framed).collect()).done();
    let body = tag("body").put(heading).put(nav).put(main).put(foot_of(foot)).done();
    let whole = tag("html").with("lang", "en").put(head()).put(body).done();
    format!("<!DOCTYPE html>\n{}\n", whole.into_ascii())
}

fn head() -> Html {
    let mut head = Html::fixed(
        "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
    );
    head.put(tag("title").say(format!("shardmaster: {}", database::name())).done());
    head.put(tag("style").put(Html::fixed(STYLE)).done());
    tag("head").put(head).done()
}

fn foot_of(words: &'static str) -> Html {
    tag("footer").put(tag("p").class("quiet").say(words).done()).done()
}

fn tile(class: &'static str, number: String, words: String) -> Html {
    let number = tag("b").say(number).done();
    tag("li").class(class).put(number).put(tag("span").say(words).done()).done()
}

fn noun(number: i64, one: &str, more: &str) -> String {
    if number == 1 { one } else { more }.to_owned()
}

fn tiles(standing: &[ReportItem], shards: i64, routed: &Routed) -> Html {
    let bad = standing.iter().filter(|item| !item.is_ok).count() as i64;
    let (running, failed, ended): (i64, i64, i64) = sql::read_one(
        "SELECT count(*) FILTER (WHERE p.finished_at IS NULL AND p.phase <> 'rolled_back'),
                count(*) FILTER (WHERE p.finished_at IS NULL AND p.activity = 'failed'),
                count(*) FILTER (WHERE p.finished_at IS NOT NULL OR p.phase = 'rolled_back')
           FROM shardmaster.split_plan p WHERE NOT (p.reverse_of IS NOT NULL AND p.started_at IS NULL AND p.phase IN ('planning', 'rolled_back'))",
        &[],
        |row| (row.value(1), row.value(2), row.value(3)),
    )
    .unwrap_or((0, 0, 0));
    let splits = match failed {
        0 => format!(
            "{}, {} ended",
            noun(running, "split is under way", "splits are under way"),
            units::count(ended)
        ),
        _ => format!(
            "{}, {} failed",
            noun(running, "split is under way", "splits are under way"),
            units::count(failed)
        ),
    };
    let tiles = [
        tile("tile", units::count(shards), noun(shards, "shard", "shards")),
        tile(
            "tile",
            routed.about(units::rough(routed.all() as f64)),
            noun(routed.all(), "entry of routing", "entries of routing"),
        ),
        tile(if failed > 0 { "tile bad" } else { "tile" }, units::count(running), splits),
        tile(
            if bad > 0 { "tile bad" } else { "tile ok" },
            units::count(bad),
            noun(bad, "thing needs attention", "things need attention"),
        ),
    ];
    tag("ul").class("tiles").put(tiles.into_iter().collect()).done()
}

fn framed(section: Section) -> Html {
    let heading_id = format!("{}-heading", section.id);
    let title = tag("h2").with("id", &heading_id).say(section.title).done();
    let whole = tag("section").with("id", section.id).with("aria-labelledby", &heading_id);
    whole.put(title).put(section.body).done()
}

#[cfg(test)]
mod tests {
    use super::STYLE;

    #[test]
    fn the_style_is_of_this_page_alone() {
        assert!(!STYLE.contains(['<', '&']) && !STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
