//! Splits: each is a card with its stages as a timeline, and the measurements of its worker as curves.

use super::html::{Html, tag};
use super::plot::{Curve, bar, left_out};
use super::section::Section;
use super::timeline::{self, Times};
use super::units::{bytes, count, counted, duration, moment, percent, rough};
use crate::server::sql;
use crate::split::metrics::{self, KnownFigures};
use std::collections::HashMap;

/// The number of splits on a page.
const MOST: i64 = 12;

pub struct Split {
    id: i64,
    source: String,
    target: String,
    keyspace: String,
    moves: String,
    phase: String,
    activity: String,
    waiting_for: Option<String>,
    description: Option<String>,
    times: Times,
    rows_copied: i64,
    percent: Option<f64>,
    lag: (Option<i64>, Option<f64>),
    queue_bytes: Option<i64>,
    fence_ms: Option<f64>,
    of_all: i64,
    /// In seconds since 1970; writers of the moving rows are blocked at the moment.
    fenced_since: Option<f64>,
}

/// A worker's measurements at one moment.
struct Sample {
    at: f64,
    rows: i64,
    changes: i64,
    lag: f64,
    queue: i64,
}

pub fn section(now: f64) -> Section {
    let splits = all();
    let of_all = splits.first().map_or(0, |split| split.of_all);
    let running: HashMap<i64, KnownFigures> = match metrics::now(None) {
        Ok(known) => known.into_iter().collect(),
        // The catalog does not know a shard, so the recorded figures are shown.
        Err(_) => HashMap::new(),
    };
    let mut body = Html::default();
    if splits.is_empty() {
        body.put(
            tag("p")
                .class("quiet")
                .say("No split has been planned yet: shard_split_plan() plans one.")
                .done(),
        );
    }
    body.put(fences(&splits));
    body.put(splits.iter().map(|split| card(split, running.get(&split.id), now)).collect());
    body.put(left_out(of_all - MOST, "older split is", "older splits are"));
    Section { id: "splits", title: "Splits", body }
}

fn all() -> Vec<Split> {
    sql::read(include_str!("../../sql/report/splits.sql"), &[MOST.into()], |row| Split {
        id: row.value(1),
        source: row.value(2),
        target: row.value(3),
        keyspace: row.value(4),
        moves: row.get(5).unwrap_or_default(),
        phase: row.value(6),
        activity: row.value(7),
        waiting_for: row.get(8),
        description: row.get(9),
        times: Times {
            planned: row.value(10),
            captured: row.get(11),
            copying: row.get(12),
            copied: row.get(13),
            cut_over: row.get(14),
            ended: row.get(15),
        },
        rows_copied: row.value(16),
        percent: row.get(17),
        lag: (row.get(18), row.get(19)),
        queue_bytes: row.get(20),
        fence_ms: row.get(21),
        of_all: row.value(22),
        fenced_since: row.get(23),
    })
}

/// Shows how long writers were blocked, for the splits that have cut over.
fn fences(splits: &[Split]) -> Html {
    let mut known: Vec<(&Split, f64)> =
        splits.iter().filter_map(|split| Some((split, split.fence_ms?))).collect();
    known.sort_by_key(|(split, _)| -split.id);
    let most = known.iter().map(|(_, fence)| *fence).fold(0.0, f64::max);
    if known.is_empty() {
        return Html::default();
    }
    let row = |(split, fence): &(&Split, f64)| {
        let name = tag("dt").say(format!("split {}", split.id)).done();
        let value = tag("dd")
            .put(bar(&[("accent", fence / most.max(1e-9))]))
            .put(tag("span").class("of").say(duration(fence / 1000.0)).done());
        [name, value.done()].into_iter().collect::<Html>()
    };
    let title = tag("h3").say("How long writers of moving rows waited at the cutover").done();
    let list = tag("dl").class("fences").put(known.iter().map(row).collect()).done();
    tag("div").class("card").put(title).put(list).done()
}

fn card(split: &Split, known: Option<&KnownFigures>, now: f64) -> Html {
    let arrow = Html::fixed(" <span aria-label=\"to\">→</span> ");
    let title = tag("h3")
        .say(format!("Split {}: ", split.id))
        .put(Html::short_name(&split.source, 80))
        .put(arrow)
        .put(Html::short_name(&split.target, 80))
        .done();
    let heading = tag("div").class("heading").put(title).put(state(split)).done();
    let mut about = tag("p").put(Html::short_name(&split.moves, 120)).say(" of keyspace ");
    about = about.put(Html::short_name(&split.keyspace, 80));
    if let Some(text) = &split.description {
        about = about.say(": ").put(Html::name(text));
    }
    let mut html = heading;
    html.put(about.done());
    if let Some(text) = &split.waiting_for {
        let class = if split.activity == "failed" { "why bad" } else { "why" };
        let says = if split.activity == "failed" { "It has failed: " } else { "It waits for: " };
        html.put(tag("p").class(class).say(says).put(Html::short_name(text, 300)).done());
    }
    if let Some(since) = split.fenced_since {
        let text = format!(
            "Writers of the moving rows have waited since {}, for {} so far.",
            moment(since),
            duration(now - since)
        );
        html.put(tag("p").class("why bad").say(text).done());
    }
    html.put(timeline::draw(&split.times, &split.phase, now));
    html.put(facts(split, known));
    html.put(curves(split, now));
    tag("article").class("card").put(html).done()
}

fn state(split: &Split) -> Html {
    let (class, words) = match (split.activity.as_str(), split.phase.as_str()) {
        ("failed", _) => ("pill bad", format!("failed, {}", split.phase)),
        ("retrying" | "paused" | "rolling back" | "writers wait" | "being taken back" | "finishing", _) => {
            ("pill warn", format!("{}, {}", split.activity, split.phase))
        }
        (_, "taken back") => ("pill off", split.phase.clone()),
        (_, "finished" | "completed") => ("pill ok", split.phase.clone()),
        (_, "rolled_back") => ("pill off", split.phase.clone()),
        (_, "backfill") => ("pill run", format!("backfill, {}", percent(split.percent.unwrap_or(0.0)))),
        _ => ("pill run", split.phase.clone()),
    };
    tag("span").class(class).say(words).done()
}

/// Shows current figures if the source has just reported them.
fn facts(split: &Split, known: Option<&KnownFigures>) -> Html {
    let (rows, lag, queue) = match known {
        Some(Ok(now)) => (Some(now.lag_rows), Some(now.lag.as_secs_f64()), Some(now.queue_bytes)),
        Some(Err(_)) => (None, None, None),
        None => (split.lag.0, split.lag.1, split.queue_bytes),
    };
    let unknown =
        || if matches!(known, Some(Err(_))) { "its source does not answer" } else { "–" }.to_owned();
    let behind = match (rows, lag) {
        (Some(0), _) => "nothing".to_owned(),
        (Some(rows), Some(lag)) => format!("{}, {}", counted(rows, "change", "changes"), duration(lag)),
        _ => unknown(),
    };
    let copied = match copy_rate(split) {
        Some(rate) => format!("{}, {} rows/s", counted(split.rows_copied, "row", "rows"), rough(rate)),
        // The copied rows were deleted, and are not counted any more.
        None if split.phase == "rolled_back" => "–".to_owned(),
        None => counted(split.rows_copied, "row", "rows"),
    };
    let fact = |name: &'static str, value: String| {
        let name = tag("dt").say(name).done();
        tag("div").put(name).put(tag("dd").say(value).done()).done()
    };
    let fence = split.fence_ms.map_or("–".to_owned(), |fence| duration(fence / 1000.0));
    let facts = [
        fact("Copied", copied),
        fact("Behind", behind),
        fact("Queue", queue.map_or_else(unknown, |queue| bytes(queue as f64))),
        fact("Writers waited", fence),
    ];
    tag("dl").class("facts").put(facts.into_iter().collect()).done()
}

fn copy_rate(split: &Split) -> Option<f64> {
    let seconds = split.times.copied? - split.times.copying?;
    (split.rows_copied > 0 && seconds > 0.0).then(|| split.rows_copied as f64 / seconds)
}

fn curves(split: &Split, now: f64) -> Html {
    let samples = sql::read(include_str!("../../sql/report/samples.sql"), &[split.id.into()], |row| Sample {
        at: row.value(1),
        rows: row.value(2),
        changes: row.value(3),
        lag: row.value(4),
        queue: row.value(5),
    });
    // Fewer than three samples make no curve: a small split ends before them.
    let ([first, .., last], true) = (samples.as_slice(), samples.len() > 2) else { return Html::default() };
    let end = split.times.cut_over.or(split.times.ended).unwrap_or(now).max(last.at);
    let within = (first.at, end);
    let rate = |of: fn(&Sample) -> i64| -> Vec<(f64, f64)> {
        let between = |pair: &[Sample]| {
            let seconds = (pair[1].at - pair[0].at).max(1e-3);
            // A copy that starts again counts from zero.
            (pair[1].at, (of(&pair[1]) - of(&pair[0])).max(0) as f64 / seconds)
        };
        samples.windows(2).map(between).collect()
    };
    let figure = |of: fn(&Sample) -> f64| samples.iter().map(|sample| (sample.at, of(sample))).collect();
    let (copied, applied) = (rate(|sample| sample.rows), rate(|sample| sample.changes));
    let lag: Vec<(f64, f64)> = figure(|sample| sample.lag);
    let queue: Vec<(f64, f64)> = figure(|sample| sample.queue as f64);
    let drawn = [
        // The rows were copied before the first measurement, so a curve would show none.
        if copied.iter().any(|(_, rate)| *rate > 0.0) {
            Curve { name: "Rows copied a second", points: &copied, within, shown: rough, little: 100.0 }
                .draw()
        } else {
            Html::default()
        },
        Curve { name: "Changes applied a second", points: &applied, within, shown: rough, little: 100.0 }
            .draw(),
        Curve { name: "Lag", points: &lag, within, shown: duration, little: 0.1 }.draw(),
        Curve { name: "Queue", points: &queue, within, shown: bytes, little: 65_536.0 }.draw(),
    ];
    let words = format!(
        "The curves span {}, of {} measurements.",
        duration(end - first.at),
        count(samples.len() as i64)
    );
    let mut html = tag("div").class("curves").put(drawn.into_iter().collect()).done();
    html.put(tag("p").class("quiet").say(words).done());
    html
}
