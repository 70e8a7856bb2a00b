//! Rows that two shards have because of a split, of which only one shard answers.

use crate::catalog::split;
use crate::catalog::split_state::IS_OVER;
use crate::catalog::table_policy::TableName;
use crate::error::{Failure, SqlState};
use crate::keys::scope::Scope;
use crate::remote::quote::ident;
use crate::remote::result::Rows;
use crate::remote::template::{TemplateValue, fill, text, texts};
use crate::server::sql;
use std::collections::HashMap;

/// A table with rows on a shard that another shard answers for.
pub struct Hidden {
    pub schema: String,
    pub name: String,
    pub shard_by: String,
    /// The scope of each split that has put them there, or left them.
    pub scopes: Vec<(i64, Scope)>,
}

/// All such tables, as committed at one moment.
pub struct Between {
    /// The tables by shard.
    pub hidden: HashMap<String, Vec<Hidden>>,
    /// A text that changes whenever anything has changed.
    pub mark: String,
}

/// A split whose rows two shards have, or may have.
struct MovingSplit {
    id: i64,
    /// The side that does not answer for them.
    side: String,
    /// A key that was routed by hand meanwhile, and its shard.
    astray: Option<(String, String)>,
}

/// Returns the splits whose rows two shards may have. An idle reverse split copies nothing, and once it has decided,
/// the split that it reverses does not count. A plan that was not started is on no shard. What a split has left on a
/// shard that was declared lost stays there until it is cleaned up.
fn moving() -> Vec<MovingSplit> {
    sql::read_latest(
        &format!(
            "SELECT p.id, s.side, astray.key, astray.read_shard
               FROM shardmaster.split_plan p
              CROSS JOIN LATERAL (
                    SELECT CASE p.phase WHEN 'completed' THEN 'source' ELSE 'target' END
                     WHERE NOT {IS_OVER} AND NOT (p.phase = 'planning' AND p.goal = 'planning')
                       AND NOT EXISTS (SELECT FROM shardmaster.split_plan r WHERE r.reverse_of = p.id AND r.phase = 'completed')
                     UNION ALL
                    SELECT l.side FROM shardmaster.split_ledger l JOIN shardmaster.shard USING (shard_key)
                     WHERE l.split_id = p.id AND l.removed_at IS NULL AND {IS_OVER}
                       AND CASE l.side
                               WHEN 'source' THEN p.source_lost
                               ELSE p.phase = 'rolled_back'
                                    OR EXISTS (SELECT FROM shardmaster.split_plan r
                                                WHERE r.reverse_of = p.id AND r.phase = 'completed' AND r.source_lost)
                           END) s (side)
               LEFT JOIN LATERAL (
                    SELECT e.key, e.read_shard
                      FROM shardmaster.split_key k
                      JOIN shardmaster.routing_entry e ON e.keyspace = k.keyspace AND e.key = k.key AND e.valid_to IS NULL
                     WHERE k.split_id = p.id
                       AND CASE WHEN {IS_OVER}
                                THEN e.read_shard = CASE s.side WHEN 'source' THEN p.source_shard ELSE p.target_shard END
                                ELSE e.read_shard <> CASE s.side WHEN 'source' THEN p.target_shard ELSE p.source_shard END
                           END
                     LIMIT 1) astray ON true
              ORDER BY p.id, s.side"
        ),
        &[],
        |row| MovingSplit {
            id: row.value(1),
            side: row.value(2),
            astray: row.get::<String>(3).zip(row.get::<String>(4)),
        },
    )
}

/// Returns what a list of splits does not show: a split that was created and removed in between, or a rolled-back one
/// that ran again.
fn counted() -> String {
    sql::read_one_latest(
        "SELECT pg_catalog.concat_ws(' ', (SELECT max(id) FROM shardmaster.split_plan),
                (SELECT sum(generation) FROM shardmaster.split_plan WHERE phase = 'rolled_back'))",
        &[],
        |row| row.value::<String>(1),
    )
    .unwrap_or_default()
}

/// Returns the tables as committed by now.
pub fn now() -> Result<Between, Failure> {
    let counted = counted();
    let moving = moving();
    let marks: Vec<String> = moving.iter().map(|one| format!("{}:{}", one.id, one.side)).collect();
    let mut hidden = HashMap::new();
    for one in &moving {
        if let Some((key, shard)) = &one.astray {
            return Err(is_astray(one.id, key, shard));
        }
        hide(&mut hidden, one)?;
    }
    Ok(Between { hidden, mark: format!("{counted} {}", marks.join(" ")) })
}

fn is_astray(split: i64, key: &str, shard: &str) -> Failure {
    let text = format!("key \"{key}\" of split {split} is routed to shard \"{shard}\" by hand");
    Failure::new(SqlState::NOT_IN_STATE, text)
        .detail("Two shards may have its rows, and it is not known which of them is right.")
        .hint(format!("SELECT * FROM shard_split_diagnose({split}) tells more."))
}

fn hide(hidden: &mut HashMap<String, Vec<Hidden>>, moving: &MovingSplit) -> Result<(), Failure> {
    let plan = split::load(moving.id)?;
    let shard = if moving.side == "source" { &plan.source } else { &plan.target };
    let tables = hidden.entry(shard.shard_key.clone()).or_default();
    for table in &plan.tables {
        let schema = table.schema.as_ref().unwrap_or(&shard.namespace);
        let scope = (plan.id, plan.scope.clone());
        let same = tables.iter_mut().find(|known| {
            (&known.schema, &known.name, &known.shard_by) == (schema, &table.name, &table.shard_by)
        });
        match same {
            Some(known) => known.scopes.push(scope),
            None => tables.push(Hidden {
                schema: schema.clone(),
                name: table.name.clone(),
                shard_by: table.shard_by.clone(),
                scopes: vec![scope],
            }),
        }
    }
    Ok(())
}

/// Returns a query for the tables that a session reads by their plain names, and their columns.
pub fn columns_question(tables: &[Hidden]) -> String {
    fill(
        include_str!("../../sql/query/columns.sql"),
        &[
            ("schemas", list(tables, |table| &table.schema)),
            ("names", list(tables, |table| &table.name)),
            ("columns", list(tables, |table| &table.shard_by)),
        ],
    )
}

fn list(tables: &[Hidden], of: fn(&Hidden) -> &String) -> TemplateValue {
    texts(tables.iter().map(of))
}

/// Returns those that a session reads by their plain names, with the type of their key and their columns.
fn by_plain_names<'a>(
    tables: &'a [Hidden],
    columns: &'a Rows,
) -> impl Iterator<Item = (&'a Hidden, &'a str, &'a str)> {
    columns.rows.iter().filter_map(|row| {
        let [Some(number), Some(base), Some(readable), _] = row.as_slice() else { return None };
        let number = number.parse::<usize>().ok()?.checked_sub(1)?;
        Some((tables.get(number)?, base.as_str(), readable.as_str()))
    })
}

/// Returns those that a session sees through `shadows`.
pub fn seen<'a>(tables: &'a [Hidden], columns: &'a Rows) -> Vec<&'a Hidden> {
    by_plain_names(tables, columns).map(|(table, ..)| table).collect()
}

/// Whether the session may not read all columns of one of them: its shadow lacks some.
pub fn lacks_columns(columns: &Rows) -> bool {
    columns.rows.iter().any(|row| row.last().and_then(Option::as_deref) == Some("t"))
}

/// Returns the name by which a session reads a table: with its schema, so that none of the same name elsewhere is read
/// instead.
pub fn name_of(table: &TableName, namespace: &str, seen: &[&Hidden]) -> String {
    let schema = table.schema.as_deref().unwrap_or(namespace);
    let is_seen = seen.iter().any(|hidden| hidden.schema == schema && hidden.name == table.name);
    format!("{}.{}", ident(if is_seen { "pg_temp" } else { schema }), ident(&table.name))
}

/// Returns statements by which a session sees these tables, by their plain names, without the rows that its shard does
/// not answer for. A table that its plain name does not refer to stays visible, and `reads_past` finds statements that
/// read it.
pub fn shadows(tables: &[Hidden], columns: &Rows) -> String {
    let (mut functions, mut views) = (Vec::new(), Vec::new());
    for (table, base, readable) in by_plain_names(tables, columns) {
        let value = format!("r.{}::{base}", ident(&table.shard_by));
        let mut conditions = Vec::new();
        for (_, scope) in &table.scopes {
            let (needs, predicate) = scope.of_value(&value, base);
            conditions.push(format!("({predicate}) IS NOT TRUE"));
            if !needs.is_empty() && !functions.contains(&needs) {
                functions.push(needs);
            }
        }
        let (name, schema) = (ident(&table.name), ident(&table.schema));
        views.push(format!(
            "CREATE TEMP VIEW {name} AS SELECT {readable} FROM {schema}.{name} AS r WHERE {}",
            conditions.join(" AND ")
        ));
    }
    let path = vec!["SET LOCAL search_path = pg_catalog, pg_temp".to_owned()];
    format!("BEGIN; {}; COMMIT", [path, functions, views].concat().join(";\n"))
}

/// Returns a query for what a statement, with the view `ASKED`, reads besides the shadows: this could include rows
/// that are not this shard's. No rows mean that it reads nothing else.
pub fn reads_past(tables: &[Hidden]) -> String {
    let splits: Vec<String> = splits(tables).iter().map(i64::to_string).collect();
    fill(
        include_str!("../../sql/query/reads_past.sql"),
        &[
            ("schemas", list(tables, |table| &table.schema)),
            ("names", list(tables, |table| &table.name)),
            ("functions", text(format!("^(capture|guard|refuse)_({})_", splits.join("|")))),
        ],
    )
}

/// Returns the splits in their order.
pub fn splits(tables: &[Hidden]) -> Vec<i64> {
    let mut all: Vec<i64> =
        tables.iter().flat_map(|table| table.scopes.iter().map(|(split, _)| *split)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The view that is made of a statement before it runs, to determine what it reads.
pub const ASKED: &str = "shardmaster_asked";

/// Whether a statement may contain ONLY for a table, which no view shows. The end of FETCH FIRST 10 ROWS ONLY, with
/// only blanks between its words, does not count.
pub fn says_only(statement: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let lower = statement.to_lowercase();
    lower.match_indices("only").any(|(at, word)| {
        let (before, after) = (&lower[..at], &lower[at + word.len()..]);
        if before.ends_with(is_word) || after.starts_with(is_word) {
            return false;
        }
        let blanks = before.trim_end();
        let last = blanks.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        blanks.len() == before.len() || !["row", "rows"].contains(&last)
    })
}

#[cfg(test)]
mod tests {
    use super::{Hidden, says_only, shadows};
    use crate::keys::scope::Scope;
    use crate::remote::result::Rows;

    #[test]
    fn what_each_of_several_splits_hides_is_hidden() {
        let scope = |split: i64, key: &str| (split, Scope::Keys(vec![key.to_owned()]));
        let table = Hidden {
            schema: "app".into(),
            name: "items".into(),
            shard_by: "tenant".into(),
            scopes: vec![scope(1, "a"), scope(2, "b")],
        };
        let cells = ["1", "text", "r.*", "f"].map(|cell| Some(cell.to_owned()));
        let text = shadows(&[table], &Rows { rows: vec![cells.into()], ..Rows::default() });
        let conditions = text.split(" WHERE ").nth(1).unwrap();
        assert_eq!(conditions.matches(" IS NOT TRUE").count(), 2, "{text}");
        assert!(conditions.contains(" IS NOT TRUE AND (") && !conditions.contains(" OR "), "{text}");
    }

    #[test]
    fn only_is_of_tables_unless_it_ends_a_fetch() {
        for text in [
            "SELECT * FROM ONLY t",
            "select 1 from(only t)",
            "SELECT * FROM\nonly\nt",
            "SELECT 1 FROM a rows, ONLY b",
            "FROM a AS rows,only b",
        ] {
            assert!(says_only(text), "{text}");
        }
        for text in
            ["SELECT 1 FETCH FIRST 10 ROWS ONLY", "FETCH FIRST ROW\n only", "SELECT only_one", "SELECT 1"]
        {
            assert!(!says_only(text), "{text}");
        }
    }
}
