//! Capture: the functions that the triggers of a source call. If the scope is too long for a trigger's condition, the
//! function itself decides whether a row is in scope: each call in a condition costs every statement more than the
//! call of the function does.

use super::filter::Filter;
use super::session::Side;
use super::shape::{Column, TableShape};
use super::state::{queue, scope, side};
use super::{SAMPLE, WatchedTable, in_scope_function, key_arguments, key_values, trigger_function};
use crate::agent::row_decision::{is_judged_within, same};
use crate::catalog::split::Plan;
use crate::keys::scope::Scope;
use crate::remote::template::{fill, number as whole, sql, text, word};

const CAPTURE: &str = include_str!("../../sql/agent/capture.sql");
const REFUSE: &str = include_str!("../../sql/agent/refuse.sql");
const JUDGE: &str = include_str!("../../sql/agent/judge.sql");

/// The function that the capture function of one table calls to refuse a writer.
fn refuse_function(split: i64, ordinal: i32) -> String {
    format!("refuse_{split}_{ordinal}")
}

/// Returns an argument with its own column's collation: the server gives all arguments of a call one collation, which
/// may be that of another column.
fn collated(argument: &str, column: &Column) -> String {
    match column.base.as_str() {
        "text" | "character varying" => {
            let collation = column.collation.as_deref().unwrap_or("pg_catalog.\"default\"");
            format!("({argument} COLLATE {collation})")
        }
        _ => argument.to_owned(),
    }
}

/// Returns the first part of a table's function, which checks whether the row is in scope.
fn judge(split: i64, scope: &Scope, by: &Column, filter: Option<&Filter>) -> String {
    let Some(same) = same("new_by", "old_by", by) else { return String::new() };
    let [new, old] = ["new_by", "old_by"].map(|argument| collated(argument, by));
    let look_up =
        |value: &str| format!("shardmaster_agent.{}({value})", in_scope_function(split, Side::Source));
    let bit =
        |filter: &Filter, value: &str, is: u8| format!("{} OPERATOR(pg_catalog.=) {is}", filter.test(value));
    let quick = filter.map_or(String::new(), |filter| {
        format!("IF {} AND {same} THEN RETURN false; END IF;", bit(filter, &new, 0))
    });
    let (new, old) = match (scope, filter) {
        // Each bucket has a bit of its own, so no look-up is needed.
        (Scope::Buckets { .. }, Some(filter)) => (bit(filter, &new, 1), bit(filter, &old, 1)),
        (Scope::Buckets { .. }, None) | (Scope::Keys(_) | Scope::Ranges { .. }, _) => {
            (look_up(&new), look_up(&old))
        }
    };
    fill(
        JUDGE,
        &[
            ("quick", sql(quick)),
            ("same", sql(same)),
            ("new_is_in_scope", sql(new)),
            ("old_is_in_scope", sql(old)),
        ],
    )
}

/// Returns an SQL condition: both versions of a row have the same key.
fn same_keys(table: &TableShape) -> String {
    let of = |(key, n): (&String, usize)| same(&format!("new_{n}"), &format!("old_{n}"), table.column(key)?);
    let each: Option<Vec<String>> = table.key().iter().zip(1..).map(of).collect();
    // This compares images: a key type's own equality may be in any schema.
    each.map(|each| each.join(" AND ")).unwrap_or_else(|| {
        let [new, old] = ["new", "old"].map(|version| key_values(table, version));
        format!("pg_catalog.record_image_eq(ROW({new}), ROW({old}))")
    })
}

/// Returns the capture functions of one table of the source, and the functions that they call.
pub fn functions(plan: &Plan, watched: WatchedTable<'_>, filter: Option<&Filter>) -> String {
    let WatchedTable { shape: table, shard_by, ordinal, is_native } = watched;
    let refuse = fill(
        REFUSE,
        &[
            ("function", word(refuse_function(plan.id, ordinal))),
            ("split", whole(plan.id)),
            ("scope", word(scope::table(plan.id, Side::Source))),
            ("match", sql(plan.scope.matches("wanted"))),
            ("type", sql(shard_by.base.as_str())),
            ("shard", text(&plan.source.shard_key)),
            ("other_shard", text(&plan.target.shard_key)),
        ],
    );
    let judge = if is_native || is_judged_within(plan, shard_by) {
        judge(plan.id, &plan.scope, shard_by, filter)
    } else {
        // The condition of its triggers has checked the scope. Native triggers have no condition.
        String::new()
    };
    let either = (1..=table.key().len()).map(|n| format!("COALESCE(old_{n}, new_{n})"));
    let capture = fill(
        CAPTURE,
        &[
            ("function", word(trigger_function(plan.id, Side::Source, ordinal))),
            ("refuse", word(refuse_function(plan.id, ordinal))),
            ("split", whole(plan.id)),
            ("judge", sql(judge)),
            ("barrier", word(queue::barrier_name(plan.id))),
            ("by_type", sql(shard_by.base.as_str())),
            ("arguments", sql(key_arguments(table))),
            ("queue_keys", sql(queue::keys(table).join(", "))),
            ("queue", word(queue::table(plan.id, ordinal))),
            ("queue_sizes", sql(queue::sizes(plan))),
            ("sample", whole(SAMPLE)),
            ("sequence", word(queue::sequence(plan.id))),
            ("if_captured", sql(side::if_captured(plan.id))),
            ("same_keys", sql(same_keys(table))),
            ("new_keys", sql(key_values(table, "new"))),
            ("old_keys", sql(key_values(table, "old"))),
            ("either_keys", sql(either.collect::<Vec<_>>().join(", "))),
            ("no_keys", sql(vec!["NULL"; table.key().len() * 2].join(", "))),
        ],
    );
    format!("{refuse}\n{capture}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ordered::Ordered;
    use std::num::NonZeroU32;

    fn column(base: &str, collation: Option<&str>) -> Column {
        Column { base: base.into(), collation: collation.map(str::to_owned), ..Column::default() }
    }

    #[test]
    fn a_truncate_without_keys_is_judged_by_nobody() {
        let judged = judge(7, &Scope::Keys(vec!["1".into()]), &column("bigint", None), None);
        assert!(judged.contains("IF change OPERATOR(pg_catalog.<>) 'T'"), "{judged}");
        let looked_up = "(shardmaster_agent.in_scope_7_s(new_by) OR (new_by OPERATOR(pg_catalog.=) old_by) IS NOT TRUE \
                         AND shardmaster_agent.in_scope_7_s(old_by)) IS NOT TRUE";
        assert!(judged.contains(looked_up), "{judged}");
    }

    #[test]
    fn of_buckets_the_bits_say_all() {
        let count = NonZeroU32::new(16).unwrap();
        let buckets = vec!["1".to_owned()];
        let filter = Filter::of_buckets(Ordered::BigInt, count, &buckets);
        let scope = Scope::Buckets { of: Ordered::BigInt, count, buckets };
        let judged = judge(7, &scope, &column("integer", None), Some(&filter));
        assert!(!judged.contains("in_scope"), "{judged}");
        assert_eq!(judged.matches("get_bit").count(), 3, "{judged}");
    }

    #[test]
    fn each_argument_has_the_collation_of_its_own_column() {
        assert_eq!(collated("new_by", &column("uuid", None)), "new_by");
        assert_eq!(collated("new_by", &column("text", None)), "(new_by COLLATE pg_catalog.\"default\")");
        assert_eq!(collated("new_by", &column("text", Some("a.b"))), "(new_by COLLATE a.b)");
    }
}
