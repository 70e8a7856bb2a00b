//! Makes docs/internals/reliability.md from the records of the tests: see `records`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A line: its kind, and its facts by name.
struct Record<'a> {
    kind: &'a str,
    facts: BTreeMap<&'a str, &'a str>,
}

impl<'a> Record<'a> {
    fn parse(line: &'a str) -> Option<Record<'a>> {
        let mut parts = line.split('\t');
        let kind = parts.next().filter(|kind| !kind.is_empty())?;
        Some(Record { kind, facts: parts.filter_map(|part| part.split_once('=')).collect() })
    }

    fn text(&self, name: &str) -> &'a str {
        self.facts.get(name).copied().unwrap_or("")
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

/// Returns the page. `said` is a line about where and when the tests ran.
pub fn page(lines: &str, said: &str) -> String {
    let records: Vec<Record<'_>> = lines.lines().filter_map(Record::parse).collect();
    let of = |kind: &str| records.iter().filter(|record| record.kind == kind).collect::<Vec<_>>();
    let mut page = format!(
        "# Reliability\n\n`make reliability` writes this page from the records of its runs: {said}.\n\n\
         Every run compares the writes that were acknowledged with every row of every shard at its end. A run that\n\
         finds a difference fails and leaves no page. [Tests](tests.md) describes the tests behind each table.\n"
    );
    load(&mut page, &of("load"));
    walks(&mut page, &of("walk"));
    histories(&mut page, &of("history"));
    failovers(&mut page, &of("failovers"));
    disasters(&mut page, &of("disaster"));
    faults(&mut page, &of("fault"));
    page
}

fn table(page: &mut String, title: &str, said: &str, head: &[&str]) {
    let rule = vec!["---"; head.len()].join("|");
    let _ = write!(page, "\n## {title}\n\n{said}\n\n| {} |\n|{rule}|\n", head.join(" | "));
}

fn row(page: &mut String, cells: &[String]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn sum(records: &[&Record<'_>], name: &str) -> String {
    records.iter().map(|record| record.number(name)).sum::<u64>().to_string()
}

fn longest(records: &[&Record<'_>], name: &str) -> String {
    format!("{} ms", records.iter().map(|record| record.number(name)).max().unwrap_or(0))
}

/// Groups the records by the value of one of their facts.
fn by<'a, 'b>(records: &[&'a Record<'b>], name: &str) -> BTreeMap<&'b str, Vec<&'a Record<'b>>> {
    let mut groups: BTreeMap<&str, Vec<&Record<'_>>> = BTreeMap::new();
    for record in records {
        groups.entry(record.text(name)).or_default().push(record);
    }
    groups
}

fn load(page: &mut String, records: &[&Record<'_>]) {
    let head =
        ["runs", "writes acknowledged", "lost", "doubled", "misplaced", "longest write, moving", "staying"];
    let said = "Tenants, buckets and ranges move forward and back.";
    table(page, "Splits under load, without faults", said, &head);
    let mut cells = vec![records.len().to_string()];
    cells.extend(["acknowledged", "lost", "doubled", "misplaced"].map(|name| sum(records, name)));
    cells.extend(["moving", "staying"].map(|name| longest(records, name)));
    row(page, &cells);
}

fn walks(page: &mut String, records: &[&Record<'_>]) {
    let head = [
        "faults",
        "walks",
        "hours",
        "steps",
        "splits",
        "of these reversed",
        "writes acknowledged",
        "lost, doubled or misplaced",
    ];
    let said = "An operator makes calls in any order, on several splits at once. The calls include rollbacks, reverse\n\
                splits, restored masters and lost targets. After each step, a write of every key is tried on every shard.\n\
                The answers are compared with a model.";
    table(page, "Random walks", said, &head);
    for (faults, records) in by(records, "faults") {
        let hours = records.iter().map(|record| record.number("seconds")).sum::<u64>() as f64 / 3600.0;
        let mut cells = vec![faults.to_owned(), records.len().to_string(), format!("{hours:.2}")];
        cells.extend(["steps", "splits", "back", "acknowledged"].map(|name| sum(&records, name)));
        cells.push("0".to_owned());
        row(page, &cells);
    }
}

fn histories(page: &mut String, records: &[&Record<'_>]) {
    let said = "Clients append to lists, set registers and transfer money across rollbacks, cutovers and reverse splits.\n\
                The test searches for cycles between transactions.";
    table(page, "Histories", said, &["isolation level", "committed", "aborted", "anomalies"]);
    for (level, records) in by(records, "level") {
        let mut cells = vec![level.to_owned()];
        cells.extend(["committed", "aborted", "anomalies"].map(|name| sum(&records, name)));
        row(page, &cells);
    }
}

fn failovers(page: &mut String, records: &[&Record<'_>]) {
    if records.is_empty() {
        return;
    }
    let said = "Source, target and master are synchronous pairs under Patroni. Leaders are killed while splits go forward\n\
                and back.";
    let head = [
        "kills",
        "forward",
        "reversed",
        "rolled back",
        "writes acknowledged",
        "lost",
        "doubled",
        "misplaced",
        "longest failover",
        "longest write",
        "beyond failovers",
    ];
    table(page, "Failovers", said, &head);
    let counted =
        ["kills", "forward", "reversed", "rolled_back", "acknowledged", "lost", "doubled", "misplaced"];
    let mut cells: Vec<String> = counted.iter().map(|name| sum(records, name)).collect();
    cells.extend(["failover", "stall", "beyond"].map(|name| longest(records, name)));
    row(page, &cells);
}

fn disasters(page: &mut String, records: &[&Record<'_>]) {
    let said = "Something happens to a server or a link during a split's cutover, recovery, finish or rollback. Then\n\
                documented calls alone bring the split to its end. `points` counts the injection points at which this\n\
                was tried. The longest wait is the longest time that a writer of the moving key waited for an answer while\n\
                its server was up: it shows how long recovery took.\n\n\
                - `Cut`: connections end, new ones are refused. `Silent`: nothing passes, and nobody is told.\n\
                - `OneLost`: one connection falls silent. `Slow`: every message takes longer.\n\
                - `Disk`: the server is set back to a snapshot of its disk. `Dump`: it is restored from a dump.\n\
                - `Standby`: an asynchronous standby takes over, without the last writes. `Gone`: the server never returns.\n\
                - `Hung`: all its processes stop for longer than a cutover may take. `Full`: its disk is full.";
    table(page, "Disasters", said, &["what", "points", "longest wait"]);
    for (what, records) in by(records, "what") {
        let points: BTreeSet<&str> = records.iter().map(|record| record.text("point")).collect();
        row(page, &[what.to_owned(), points.len().to_string(), longest(&records, "longest")]);
    }
}

fn faults(page: &mut String, records: &[&Record<'_>]) {
    let kinds = by(records, "kind");
    let said = "How often a split met which fault at which injection point, and came to its end as if nothing had happened.\n\
         \"It\" is the split's worker.";
    let head: Vec<&str> = std::iter::once("point").chain(kinds.keys().copied()).collect();
    table(page, "Faults", said, &head);
    for (point, records) in by(records, "point") {
        let count = |kind: &&str| records.iter().filter(|record| record.text("kind") == *kind).count();
        let counts =
            kinds.keys().map(count).map(|count| if count == 0 { String::new() } else { count.to_string() });
        row(page, &std::iter::once(format!("`{point}`")).chain(counts).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_counted() {
        let lines = "fault\tpoint=step_begin\tkind=worker killed\nfault\tpoint=step_begin\tkind=worker killed\n\
                     fault\tpoint=finish_begin\tkind=source stops\n\
                     load\tacknowledged=7\tlost=0\tmoving=30\nload\tacknowledged=5\tlost=1\tmoving=20\n";
        let page = page(lines, "here");
        assert!(page.contains("| point | source stops | worker killed |\n"), "{page}");
        assert!(page.contains("| `finish_begin` | 1 |  |\n| `step_begin` |  | 2 |\n"), "{page}");
        assert!(page.contains("| 2 | 12 | 1 | 0 | 0 | 30 ms | 0 ms |"), "{page}");
        assert!(!page.contains("## Failovers"), "{page}");
    }
}
