//! docs/reliability.md from what tests have kept of what they tried: `records`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A line: its kind, and its facts by their names.
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

/// The page; `said` is a line about where and when.
pub fn page(lines: &str, said: &str) -> String {
    let records: Vec<Record<'_>> = lines.lines().filter_map(Record::parse).collect();
    let of = |kind: &str| records.iter().filter(|record| record.kind == kind).collect::<Vec<_>>();
    let mut page = format!(
        "# Reliability\n\nWritten by `make reliability` from what its runs have tried: {said}. Each line below is of\n\
         runs whose writers' books were compared with every row of every shard at the end; a run that\n\
         differs fails, and leaves no page.\n"
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

/// The records by what one of their facts says.
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
    table(page, "Splits under load, nothing harmed", "Tenants, buckets and ranges, there and back.", &head);
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
        "of these taken back",
        "writes acknowledged",
        "lost, doubled or misplaced",
    ];
    let said = "An operator's calls in any order, on several splits at once: also rollbacks, ways back, restored\n\
                masters, lost targets. After each step what every shard says to a write of every key is\n\
                compared with a model.";
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
    let said = "Lists, registers and transfers across rollbacks, cutovers and ways back; cycles between\n\
                transactions are searched for.";
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
    let said = "Source, target and master as synchronous pairs under Patroni, whose leaders are killed while\n\
                splits go forward and back.";
    let head = [
        "kills",
        "forward",
        "taken back",
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
    let said = "A split in whose cutover, recovery, finish or rollback something happens to a server or a link, at\n\
                as many named points; then it is taken to its end with documented calls alone. The longest that\n\
                a writer of the moving key has waited for an answer, while its server was there, says how long\n\
                it took to recover.";
    table(page, "Disasters", said, &["what", "points", "longest wait"]);
    for (what, records) in by(records, "what") {
        let points: BTreeSet<&str> = records.iter().map(|record| record.text("point")).collect();
        row(page, &[what.to_owned(), points.len().to_string(), longest(&records, "longest")]);
    }
}

fn faults(page: &mut String, records: &[&Record<'_>]) {
    let kinds = by(records, "kind");
    let said =
        "How often a split has met what at which named point, and come to its end as if nothing had been.";
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
