//! A page about a database before it is sharded: how each table reaches its tenant, what is in the way, and the steps.

use super::html::{Html, tag};
use super::plot::{Align, bar, left_out, table};
use super::section::Section;
use super::units::{bytes, count, counted, rough};
use super::{assemble, noun, tile};
use crate::survey::adoption::{AdoptionStep, StepKind};
use crate::survey::findings::{SurveyLine, Surveyed};
use crate::survey::tables::SurveyTable;
use crate::survey::tenancy::TenantBy;
use std::collections::BTreeMap;

/// The most tables below one, and the most findings of one cost.
const MOST_BELOW: usize = 200;
const MOST_FINDINGS: usize = 500;
/// A path of foreign keys is not longer.
const DEEPEST: usize = 12;

const FINDINGS: &[(&str, Align)] =
    &[("Table", Align::Text), ("Finding", Align::Words), ("Call or statement", Align::Words)];
const STEPS: &[(&str, Align)] = &[
    ("Step", Align::Number),
    ("Table", Align::Text),
    ("Call", Align::Words),
    ("Why", Align::Words),
    ("Back", Align::Words),
];
/// What a finding costs, from the most to the least.
const COSTS: [&str; 4] = ["A person decides", "A statement on the shard", "A call", "To know"];

/// Returns the whole page.
pub fn page(surveyed: &Surveyed<'_>, lines: &[SurveyLine], steps: &[AdoptionStep]) -> String {
    let title = tag("h1").say("shard ").put(Html::name(surveyed.shard)).done();
    let by = tag("p").class("quiet").say("Surveyed by column ").put(Html::name(&surveyed.tenant.name)).done();
    let heading = tag("header").put(title).put(by).done();
    assemble(
        heading,
        tiles(surveyed, steps),
        vec![tables(surveyed), findings(lines), steps_of(steps)],
        "Made by shard_survey_report() from catalogs, statistics and samples of rows. Calls that begin with shard_ run on the master, other statements on the shard.",
    )
}

fn tiles(surveyed: &Surveyed<'_>, steps: &[AdoptionStep]) -> Html {
    let of = |by: TenantBy| surveyed.tenancies.iter().filter(|one| one.by == by).count() as i64;
    let tables = surveyed.tenancies.len() as i64;
    let (keyed, through, unclear) = (of(TenantBy::Column), of(TenantBy::Through), of(TenantBy::Unclear));
    let steps = steps.iter().filter(|step| step.kind != StepKind::Decide).count() as i64;
    let class = if unclear > 0 { "tile bad" } else { "tile ok" };
    let tiles = [
        tile("tile", count(tables), noun(tables, "table", "tables")),
        tile("tile", count(keyed), noun(keyed, "table has the tenant", "tables have the tenant")),
        tile("tile", count(through), noun(through, "table reaches it", "tables reach it")),
        tile(class, count(unclear), noun(unclear, "table is unclear", "tables are unclear")),
        tile("tile", count(steps), noun(steps, "step", "steps")),
    ];
    tag("ul").class("tiles").put(tiles.into_iter().collect()).done()
}

/// Draws the tables: below each those that get their tenant from it.
fn tables(surveyed: &Surveyed<'_>) -> Section {
    let mut below: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    let mut beside: Vec<usize> = Vec::new();
    for (number, tenancy) in surveyed.tenancies.iter().enumerate() {
        let Some(path) = &tenancy.path else {
            beside.push(number);
            continue;
        };
        let above = match path.first() {
            Some(key) => surveyed.database.keys.get(*key).and_then(|key| key.to),
            None => surveyed.root.filter(|root| *root != number),
        };
        below.entry(above).or_default().push(number);
    }
    let most = surveyed.database.tables.iter().map(|table| table.bytes).max().unwrap_or(0);
    let picture = Picture { surveyed, below: &below, most };
    let words = "Below each table are those that get their tenant from it, the largest first.";
    let mut body = tag("p").class("quiet").say(words).done();
    body.put(tag("div").class("card").put(picture.branch(None, 0)).done());
    if !beside.is_empty() {
        body.put(tag("h3").say("Without a path to a tenant").done());
        body.put(tag("div").class("card").put(picture.list(&beside, DEEPEST)).done());
    }
    Section { id: "tables", title: "Tables and paths", body }
}

struct Picture<'a> {
    surveyed: &'a Surveyed<'a>,
    /// The tables below each one; those without one above are below `None`.
    below: &'a BTreeMap<Option<usize>, Vec<usize>>,
    most: i64,
}

impl Picture<'_> {
    fn branch(&self, above: Option<usize>, depth: usize) -> Html {
        match self.below.get(&above) {
            Some(numbers) if depth < DEEPEST => self.list(numbers, depth),
            _ => Html::default(),
        }
    }

    fn list(&self, numbers: &[usize], depth: usize) -> Html {
        let known = |number: &usize| Some((*number, self.surveyed.database.table(*number)?));
        let mut found: Vec<(usize, &SurveyTable)> = numbers.iter().filter_map(known).collect();
        found.sort_by_key(|(number, table)| (std::cmp::Reverse(table.bytes), *number));
        let more = found.len() as i64 - MOST_BELOW as i64;
        let items = found.iter().take(MOST_BELOW).map(|(number, table)| self.item(*number, table, depth));
        let mut list = tag("ul").class("tree").put(items.collect()).done();
        list.put(left_out(more, "table is", "tables are"));
        list
    }

    fn item(&self, number: usize, table: &SurveyTable, depth: usize) -> Html {
        let tenancy = self.surveyed.tenancies.get(number);
        let by = tenancy.map_or(TenantBy::Unclear, |tenancy| tenancy.by);
        let class = match by {
            TenantBy::Column => "pill ok",
            TenantBy::Through => "pill run",
            TenantBy::Reference | TenantBy::Global => "pill off",
            TenantBy::Unclear => "pill warn",
        };
        let first = tenancy.and_then(|tenancy| tenancy.path.as_ref()?.first());
        let words = match first.and_then(|key| self.surveyed.database.keys.get(*key)) {
            Some(key) => format!("{} by {}", by.as_str(), key.columns_text()),
            None => by.as_str().to_owned(),
        };
        let size = format!("{} rows, {}", rough(table.rows as f64), bytes(table.bytes as f64));
        let line = [
            Html::short_name(&table.shown, 80),
            Html::text(" "),
            tag("span").class(class).say(words).done(),
            Html::text(" "),
            bar(&[("accent", table.bytes as f64 / self.most.max(1) as f64)]),
            tag("span").class("of").say(size).done(),
        ];
        tag("li").put(line.into_iter().collect()).put(self.branch(Some(number), depth + 1)).done()
    }
}

/// Returns what a finding costs, as a place in COSTS.
fn cost(line: &SurveyLine) -> usize {
    match line.call.as_deref() {
        None if line.table_name.is_none() => 3,
        None => 0,
        Some(call) if call.contains("shard_") => 2,
        Some(_) => 1,
    }
}

fn findings(lines: &[SurveyLine]) -> Section {
    let mut body = Html::default();
    for (number, title) in COSTS.iter().enumerate() {
        let of: Vec<&SurveyLine> =
            lines.iter().filter(|line| line.finding.is_some() && cost(line) == number).collect();
        if of.is_empty() {
            continue;
        }
        let heading = format!("{title}: {}", counted(of.len() as i64, "finding", "findings"));
        body.put(tag("h3").say(heading).done());
        let row = |line: &&SurveyLine| {
            let words = Html::text(line.finding.as_deref().unwrap_or_default());
            vec![named(line.table_name.as_deref()), words, code(line.call.as_deref())]
        };
        body.put(table("Findings", FINDINGS, of.iter().take(MOST_FINDINGS).map(row).collect()));
        body.put(left_out(of.len() as i64 - MOST_FINDINGS as i64, "finding is", "findings are"));
    }
    Section { id: "findings", title: "Findings", body }
}

fn steps_of(steps: &[AdoptionStep]) -> Section {
    let steps = steps.iter().filter(|step| step.kind != StepKind::Decide).enumerate();
    let row = |(number, step): (usize, &AdoptionStep)| {
        vec![
            Html::text(number + 1),
            named(step.table.as_deref()),
            code(step.call.as_deref()),
            Html::text(&step.why),
            code(step.undo.as_deref()),
        ]
    };
    let words = "CALL shard_adopt_database(.., dry_run => false) takes these steps, in this order.";
    let mut body = tag("p").class("quiet").say(words).done();
    body.put(table("Steps", STEPS, steps.map(row).collect()));
    Section { id: "steps", title: "Steps", body }
}

fn named(table: Option<&str>) -> Html {
    table.map_or(Html::text("–"), |name| Html::short_name(name, 80))
}

fn code(text: Option<&str>) -> Html {
    text.map_or_else(Html::default, |text| tag("code").say(text).done())
}
