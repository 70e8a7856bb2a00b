//! What clients rely on that omit a column, set it, send a NULL, or name no columns.

use super::fact::Fact;
use super::pair::TablePair;
use crate::agent::shape::Column;
use crate::split::table::computed;

/// An identity that accepts no value of a client; otherwise it draws values like others.
const ALWAYS: &str = "ALWAYS";
const DRAWN: &str = "nextval()";

pub fn lacks(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let columns = pair.from.columns().iter();
    let mut lacks: Vec<String> = columns.filter_map(|column| of_column(pair, given, there, column)).collect();
    if is_in_another_order(pair) {
        lacks.push("the order of its columns".to_owned());
    }
    lacks
}

fn of_column(pair: &TablePair<'_>, given: &[Fact], there: &[Fact], column: &Column) -> Option<String> {
    let other = pair.to.column(&column.name)?;
    let name = &column.name;
    // Two generated columns are compared elsewhere.
    if pair.is_other(&[name.clone()].into()) || other.generated.is_some() {
        return None;
    }
    let (here, own) = (default(pair, given, name), default(pair, there, name));
    let is_given = |fact: Option<&Fact>| fact.is_none_or(|fact| fact.says != ALWAYS);
    if column.generated.is_none() && is_given(here) && !is_given(own) {
        return Some(format!("column \"{name}\" as one that statements may give a value"));
    }
    let mut lost = Vec::new();
    match (here, own) {
        _ if column.generated.is_some() => lost.push("what generates it"),
        (Some(_), None) => lost.push("DEFAULT"),
        (Some(here), Some(own)) if !is_alike(here, own) => lost.push("the same DEFAULT"),
        (None | Some(_), _) => {}
    }
    if column.not_null && !other.not_null {
        lost.push("NOT NULL");
    }
    if counts_otherwise(&column.base, &other.base) {
        lost.push("the arithmetic of the type");
    }
    lost.extend(lost_bound(column, other));
    if is_of_domain(column) && column.signature != other.signature {
        lost.push("what the domain refuses");
    }
    if bare(column.collation.as_deref()) != bare(other.collation.as_deref()) {
        lost.push("the same COLLATE");
    }
    (!lost.is_empty()).then(|| format!("{} of column \"{name}\"", lost.join(" and ")))
}

/// Whether two types accept each other's values, although the same expression has different results: `n / 2`, `n =
/// 0.1`.
fn counts_otherwise(here: &str, own: &str) -> bool {
    matches!((here, own), ("smallint" | "integer" | "bigint", "numeric") | ("real", "double precision"))
}

/// Whether its type is a domain that refuses values, by the check's description of the type.
fn is_of_domain(column: &Column) -> bool {
    let made_of = column.signature.as_deref().unwrap_or_default();
    made_of.starts_with("domain") && (made_of.contains("not null") || made_of.contains("CHECK ("))
}

/// Types whose length refuses longer values, or truncates them.
const OF_LENGTH: [&str; 4] = ["character varying", "character", "bit", "bit varying"];

/// Returns a limit that the source's type sets by its length or precision, and the target's does not.
fn lost_bound(column: &Column, other: &Column) -> Option<&'static str> {
    let here = bound(&column.stored)?;
    (bound(&other.stored).as_ref() != Some(&here)).then_some(if OF_LENGTH.contains(&column.base.as_str()) {
        "the length of the type"
    } else {
        "the precision of the type"
    })
}

/// Returns the length or precision of a type, and the fields of an interval; for times, all digits count as none.
fn bound(type_name: &str) -> Option<String> {
    let fields = type_name.strip_prefix("interval ").map(|rest| rest.split('(').next().unwrap_or_default());
    let digits = type_name.split_once('(').and_then(|(_, rest)| rest.split(')').next());
    let is_time = ["time", "interval"].iter().any(|name| type_name.starts_with(name));
    let digits = digits.filter(|digits| !(is_time && *digits == "6"));
    let said: Vec<&str> = fields.filter(|fields| !fields.is_empty()).into_iter().chain(digits).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// Returns columns for which only the target has a default.
pub fn defaults_alone(pair: &TablePair<'_>, given: &[Fact], there: &[Fact]) -> Vec<String> {
    let columns = pair.from.columns().iter().filter(|column| !column.not_null && column.generated.is_none());
    let columns = columns.filter(|column| !pair.is_other(&[column.name.clone()].into()));
    let is_alone = |column: &&Column| {
        let own = default(pair, there, &column.name).filter(|fact| fact.says != ALWAYS);
        own.is_some() && default(pair, given, &column.name).is_none()
    };
    columns.filter(is_alone).map(|column| format!("DEFAULT of column \"{}\"", column.name)).collect()
}

fn default<'a>(pair: &TablePair<'_>, facts: &'a [Fact], name: &str) -> Option<&'a Fact> {
    facts.iter().find(|fact| fact.position == pair.position && fact.is(&["default"]) && fact.name == name)
}

fn is_alike(here: &Fact, own: &Fact) -> bool {
    let drawn = |fact: &Fact| [ALWAYS, DRAWN].contains(&fact.says.as_str());
    drawn(here) && drawn(own) || here.says_as(own) || value(&here.says) == value(&own.says)
}

/// Returns a literal without its type, which may be wider on the target.
fn value(text: &str) -> &str {
    let quoted = text.strip_prefix('\'').and_then(|rest| {
        let (value, of_type) = rest.rsplit_once("'::")?;
        let is_type = of_type.chars().all(|c| c.is_alphanumeric() || " _.\"(),[]".contains(c));
        (is_type && !value.replace("''", "").contains('\'')).then_some(value)
    });
    quoted.unwrap_or_else(|| text.trim_start_matches('(').trim_end_matches(')'))
}

/// Returns a collation's name without its schema.
fn bare(name: Option<&str>) -> Option<&str> {
    name.and_then(|name| name.rsplit('.').next())
}

/// Whether a statement without column names gives values to other columns than on the source. Additional columns at
/// the target's end are not reached by such a statement.
fn is_in_another_order(pair: &TablePair<'_>) -> bool {
    let names = |columns: &'_ [Column]| -> Vec<String> {
        let names = columns.iter().map(|column| column.name.clone());
        names.filter(|name| !computed::is_own(pair.policy, name)).collect()
    };
    let mut here = names(pair.from.columns());
    here.retain(|name| pair.to.column(name).is_some());
    let mut own = names(pair.to.columns());
    let end = own.iter().rposition(|name| pair.from.column(name).is_some()).map_or(0, |last| last + 1);
    own.truncate(end);
    here != own
}

#[cfg(test)]
mod tests {
    use super::{bound, value};

    #[test]
    fn a_bound_is_what_a_type_rounds_or_cuts_by() {
        for (type_name, says) in [
            ("numeric(10,2)", Some("10,2")),
            ("numeric", None),
            ("character varying(9)[]", Some("9")),
            ("timestamp(0) without time zone", Some("0")),
            ("timestamp(6) without time zone", None),
            ("timestamp without time zone", None),
            ("interval(0)", Some("0")),
            ("interval year to month", Some("year to month")),
            ("text", None),
        ] {
            assert_eq!(bound(type_name).as_deref(), says, "{type_name}");
        }
    }

    #[test]
    fn a_literal_is_the_same_in_a_wider_type() {
        for (here, own) in [
            ("'new'::character varying", "'new'::text"),
            ("0", "'0'::bigint"),
            ("(-1)", "'-1'::integer"),
            ("'it''s'::character varying(9)", "'it''s'::text"),
        ] {
            assert_eq!(value(here), value(own));
        }
        for (here, own) in
            [("'a'::text", "'b'::text"), ("now()", "'now'::text"), ("f('a'::text)", "'a'::text")]
        {
            assert_ne!(value(here), value(own));
        }
    }
}
