//! Which columns of the source fill which of the target. The two tables may differ if no value is lost by it; for
//! everything else the operator configures how a column is computed.

use crate::agent::deparsed::in_schema;
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::{ColumnMap, PlannedTable};
use crate::remote::quote::ident;

/// A column of the target and what fills it, as SQL over a row of the source.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnMapping {
    pub target: String,
    pub source: ColumnSource,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ColumnSource {
    Column(String),
    Expression(String),
}

impl ColumnMapping {
    /// Returns SQL for the value of the row `t`.
    pub fn select(&self) -> String {
        match &self.source {
            ColumnSource::Column(name) => format!("t.{}", ident(name)),
            ColumnSource::Expression(expression) => format!("({expression})"),
        }
    }
}

/// A difference, whether it is accepted, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnDifference {
    pub ok: bool,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct ColumnPairing {
    pub pairs: Vec<ColumnMapping>,
    pub differences: Vec<ColumnDifference>,
}

/// Returns the columns of the target that cannot be computed: those of its key, and the shard-by column.
pub fn fixed<'a>(target: &'a TableShape, policy: &'a PlannedTable) -> Vec<&'a str> {
    target.key().iter().map(String::as_str).chain([policy.shard_by.as_str()]).collect()
}

impl ColumnPairing {
    /// Returns the differences that are not accepted.
    pub fn refused(&self) -> Vec<String> {
        self.differences.iter().filter(|one| !one.ok).map(|one| one.text.clone()).collect()
    }

    fn accept(&mut self, text: String) {
        self.differences.push(ColumnDifference { ok: true, text });
    }

    fn refuse(&mut self, text: String) {
        self.differences.push(ColumnDifference { ok: false, text });
    }

    fn fill(&mut self, target: &Column, source: ColumnSource) {
        self.pairs.push(ColumnMapping { target: target.name.clone(), source });
    }
}

/// Pairs the columns of a table; `fixed` ones, of the key and the shard-by column, identify rows on both sides.
pub fn pair(from: &TableShape, to: &TableShape, maps: &[ColumnMap], fixed: &[&str]) -> ColumnPairing {
    let mut pairing = ColumnPairing::default();
    let there = |column: &Column| in_schema_of(from, to, column);
    for column in to.columns() {
        let map = maps.iter().find(|map| map.column == column.name);
        match map.map(|map| map.expression.as_deref()) {
            Some(_) if fixed.contains(&column.name.as_str()) => {
                pairing
                    .refuse(format!("column \"{}\" is part of the key and cannot be computed", column.name));
            }
            Some(Some(_)) if column.generated.is_some() => {
                pairing.refuse(format!(
                    "column \"{}\" is generated on the target and cannot be computed",
                    column.name
                ));
            }
            Some(Some(expression)) => {
                pairing.accept(format!("column \"{}\" is computed: {expression}", column.name));
                pairing.fill(column, ColumnSource::Expression(expression.to_owned()));
            }
            Some(None) => leave_out(&mut pairing, column),
            None => pair_by_name(&mut pairing, from.column(&column.name).map(there).as_ref(), column),
        }
    }
    for column in from.columns().iter().filter(|column| to.column(&column.name).is_none()) {
        let left_out = maps.iter().any(|map| map.column == column.name && map.expression.is_none());
        let name = &column.name;
        if left_out {
            pairing.accept(format!("column \"{name}\" of the source is left out"));
        } else {
            pairing.refuse(format!("column \"{name}\" is missing on the target"));
        }
    }
    let is_known = |name: &str| to.column(name).is_some() || from.column(name).is_some();
    for map in maps.iter().filter(|map| !is_known(&map.column)) {
        pairing.refuse(format!("column \"{}\" is mapped, but on neither side", map.column));
    }
    pairing
}

/// Determines what fills a column that no column of the source fills.
fn leave_out(pairing: &mut ColumnPairing, column: &Column) {
    let name = &column.name;
    if column.generated.is_some() {
        pairing.accept(format!("column \"{name}\" is generated on the target"));
    } else if column.has_default {
        pairing.accept(format!("column \"{name}\" gets its default on the target"));
    } else if column.is_of_domain_not_null() {
        // COPY writes a NULL into it all the same, and no other statement does.
        pairing.refuse(format!(
            "column \"{name}\" of the target is of a domain that is NOT NULL, and has no default"
        ));
    } else if !column.not_null {
        pairing.accept(format!("column \"{name}\" is NULL on the target"));
    } else {
        pairing.refuse(format!("column \"{name}\" of the target is NOT NULL and has no default"));
    }
}

fn pair_by_name(pairing: &mut ColumnPairing, source: Option<&Column>, target: &Column) {
    let name = &target.name;
    match source {
        None => leave_out(pairing, target),
        Some(source) if source.generated.is_some() && source.generated == target.generated => {}
        Some(Column { generated: Some(there), .. }) if let Some(here) = &target.generated => {
            pairing.refuse(format!("column \"{name}\" is generated by {there} and by {here}"));
        }
        Some(_) if target.generated.is_some() => {
            pairing.refuse(format!("column \"{name}\" is generated on the target alone"));
        }
        Some(source) if target.not_null && !source.not_null => {
            pairing.refuse(format!("column \"{name}\" is NOT NULL on the target alone"));
            pairing.fill(target, ColumnSource::Column(source.name.clone()));
        }
        Some(source) if target.not_null && !source.is_validated => {
            pairing.refuse(format!("column \"{name}\" is NOT NULL, which the source has not validated"));
            pairing.fill(target, ColumnSource::Column(source.name.clone()));
        }
        Some(source) => {
            if source.type_name != target.type_name {
                let types = format!("column \"{name}\" is {} and {}", source.type_name, target.type_name);
                if is_wider(source, target) {
                    pairing.accept(format!("{types}, which accepts every value"));
                } else {
                    pairing.refuse(types);
                }
            } else if let Some((from, to)) = other_meaning(source, target) {
                let type_name = &source.type_name;
                pairing.refuse(format!(
                    "column \"{name}\" is {type_name}, which is on the source {from}, on the target {to}"
                ));
            }
            pairing.fill(target, ColumnSource::Column(source.name.clone()));
        }
    }
}

/// Returns a column of the source, as the target would write it: if shards are namespaces, each has types and
/// functions of its own.
fn in_schema_of(from: &TableShape, to: &TableShape, column: &Column) -> Column {
    let (Some(schema), Some(own)) = (schema_of(&from.name), schema_of(&to.name)) else {
        return column.clone();
    };
    if schema == own {
        return column.clone();
    }
    let of = |text: &String| in_schema(text, schema, own);
    Column {
        type_name: of(&column.type_name),
        base: of(&column.base),
        signature: column.signature.as_ref().map(of),
        generated: column.generated.as_ref().map(of),
        ..column.clone()
    }
}

/// Returns the schema of a qualified name, as it is quoted.
fn schema_of(name: &str) -> Option<&str> {
    let is_end = |at: usize| {
        name.as_bytes()[at..].first() == Some(&b'.') && name[..at].matches('"').count().is_multiple_of(2)
    };
    let end = name.char_indices().map(|(at, _)| at).find(|at| is_end(*at))?;
    Some(&name[..end])
}

/// Returns the definitions of two types of the same name if they differ.
fn other_meaning<'a>(from: &'a Column, to: &'a Column) -> Option<(&'a str, &'a str)> {
    let meaning = |column: &'a Column| column.signature.as_deref().unwrap_or("a type of the server");
    (from.signature != to.signature).then(|| (meaning(from), meaning(to)))
}

/// Whether every value of one type has the same text form in the other.
fn is_wider(from: &Column, to: &Column) -> bool {
    let unlimited = to.type_name == to.base;
    match (from.base.as_str(), to.base.as_str()) {
        ("smallint", "integer" | "bigint") | ("integer", "bigint") | ("real", "double precision") => true,
        ("smallint" | "integer" | "bigint", "numeric") => unlimited,
        ("character varying", "text") | ("text", "character varying") => unlimited,
        ("character varying", "character varying") => {
            unlimited || limit(from).zip(limit(to)).is_some_and(|(from, to)| from <= to)
        }
        // The limit of length or precision was removed.
        (a, b) => a == b && unlimited && a != "character",
    }
}

/// Returns the length in `character varying(20)`.
fn limit(column: &Column) -> Option<u32> {
    column.type_name.strip_suffix(')')?.rsplit('(').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, type_name: &str) -> Column {
        Column {
            name: name.into(),
            type_name: type_name.into(),
            base: type_name.split('(').next().unwrap_or_default().into(),
            is_validated: true,
            ..Column::default()
        }
    }

    fn table(columns: Vec<Column>) -> TableShape {
        TableShape { name: "t".into(), columns: Some(columns), ..TableShape::default() }
    }

    fn map(column: &str, expression: Option<&str>) -> ColumnMap {
        ColumnMap { column: column.into(), expression: expression.map(str::to_owned) }
    }

    fn refused(from: &TableShape, to: &TableShape, maps: &[ColumnMap]) -> Vec<String> {
        let pairing = pair(from, to, maps, &["id"]);
        pairing.differences.into_iter().filter(|d| !d.ok).map(|d| d.text).collect()
    }

    #[test]
    fn what_loses_nothing_is_accepted() {
        let from = table(vec![column("id", "integer"), column("name", "character varying(20)")]);
        let mut created = column("created", "timestamp with time zone");
        (created.not_null, created.has_default) = (true, true);
        let to = table(vec![column("note", "text"), column("name", "text"), created, column("id", "bigint")]);
        let pairing = pair(&from, &to, &[], &["id"]);
        assert!(pairing.differences.iter().all(|d| d.ok), "{:?}", pairing.differences);
        assert_eq!(pairing.differences.len(), 4);
        let selected: Vec<String> = pairing.pairs.iter().map(ColumnMapping::select).collect();
        assert_eq!(selected, ["t.\"name\"", "t.\"id\""]);
    }

    #[test]
    fn what_may_lose_something_is_refused() {
        let narrower = [
            ("bigint", "integer"),
            ("text", "character varying(5)"),
            ("character varying(9)", "character varying(5)"),
            ("character(3)", "text"),
            ("double precision", "real"),
            ("integer", "numeric(4,2)"),
            ("json", "jsonb"),
        ];
        for (from, to) in narrower {
            let refused = refused(&table(vec![column("v", from)]), &table(vec![column("v", to)]), &[]);
            assert_eq!(refused, [format!("column \"v\" is {from} and {to}")]);
        }
        let mut strict = column("v", "text");
        strict.not_null = true;
        assert_eq!(refused(&table(vec![]), &table(vec![strict.clone()]), &[]).len(), 1);
        assert_eq!(refused(&table(vec![column("v", "text")]), &table(vec![strict.clone()]), &[]).len(), 1);
        let later = Column { is_validated: false, ..strict.clone() };
        assert_eq!(refused(&table(vec![later]), &table(vec![strict]), &[]).len(), 1);
        assert_eq!(refused(&table(vec![column("v", "text")]), &table(vec![]), &[]).len(), 1);
    }

    #[test]
    fn a_domain_may_refuse_what_nothing_fills() {
        let of = |signature: &str| Column { signature: Some(signature.into()), ..column("v", "public.some") };
        for (signature, ok) in [
            ("domain CHECK ((VALUE <> 'domain not null'::text)); base text", true),
            ("domain not null; base text", false),
            ("domain; base domain not null CHECK ((VALUE <> ''::text)); base/base text", false),
            ("composite; 0001 a domain not null; 0001 a/base text", true),
        ] {
            let refused = refused(&table(vec![]), &table(vec![of(signature)]), &[]);
            assert_eq!(refused.is_empty(), ok, "{signature}");
            let with_default = table(vec![Column { has_default: true, ..of(signature) }]);
            assert!(super::pair(&table(vec![]), &with_default, &[], &[]).differences[0].ok, "{signature}");
        }
    }

    #[test]
    fn a_type_of_the_same_name_may_be_another() {
        let of = |signature: &str| Column { signature: Some(signature.into()), ..column("v", "public.pair") };
        let (from, to) =
            (table(vec![of("composite; 0001 a integer")]), table(vec![of("composite; 0001 b integer")]));
        assert!(refused(&from, &from, &[]).is_empty());
        assert_eq!(refused(&from, &to, &[]).len(), 1);
    }

    #[test]
    fn types_of_two_namespaces_are_the_same_where_they_are_made_of_the_same() {
        let named = |schema: &str, made_of: &str| {
            let column = Column { signature: Some(made_of.into()), ..column("v", &format!("{schema}.mood")) };
            TableShape { name: format!("{schema}.t"), ..table(vec![column]) }
        };
        let (from, to) = (named("\"A.b\"", "enum x, y"), named("b", "enum x, y"));
        assert_eq!(refused(&from, &to, &[]), [""; 0]);
        assert_eq!(refused(&to, &from, &[]), [""; 0]);
        assert_eq!(refused(&from, &named("b", "enum x, z"), &[]).len(), 1);
        let elsewhere = TableShape { name: "b.t".into(), ..named("c", "enum x, y") };
        assert_eq!(refused(&from, &elsewhere, &[]).len(), 1);
    }

    #[test]
    fn what_both_sides_generate_must_be_the_same() {
        let generated = |by: &str| Column { generated: Some(by.into()), ..column("v", "integer") };
        let (from, to) = (table(vec![generated("(id * 2)")]), table(vec![generated("(id * 3)")]));
        assert_eq!(refused(&from, &from, &[]), [""; 0]);
        assert_eq!(refused(&from, &to, &[]), ["column \"v\" is generated by (id * 2) and by (id * 3)"]);
        // The operator wants the target's.
        assert_eq!(refused(&from, &to, &[map("v", None)]), [""; 0]);
        assert_eq!(refused(&from, &to, &[map("v", Some("1"))]).len(), 1);
    }

    #[test]
    fn a_map_says_how_or_that_a_column_is_left_out() {
        let from = table(vec![column("id", "integer"), column("cents", "integer"), column("old", "text")]);
        let to = table(vec![column("id", "integer"), column("euros", "numeric")]);
        let maps = [map("euros", Some("cents / 100.0")), map("cents", None), map("old", None)];
        let pairing = pair(&from, &to, &maps, &["id"]);
        assert!(pairing.differences.iter().all(|d| d.ok), "{:?}", pairing.differences);
        assert_eq!(pairing.pairs[1].select(), "(cents / 100.0)");
        assert_eq!(refused(&from, &to, &maps[..2]).len(), 1);
        assert_eq!(
            refused(&from, &to, &[map("id", Some("1")), map("cents", None), map("old", None)]).len(),
            1
        );
        assert_eq!(refused(&from, &from, &[map("nowhere", Some("1"))]).len(), 1);
    }
}
