//! Tables that are named by functions of the moving tables, by their foreign keys or by views over them, and whose
//! rows stay, since they are in no keyspace, or in another one: a counter that a trigger increments restarts on the
//! target, and what a function looks up is missing there. Rows that are the same on both sides need no remark.

use super::pair::Places;
use crate::agent::error::{Result, SplitError};
use crate::agent::named::NamedThings;
use crate::agent::session::Side;
use crate::agent::table_names::TableNames;
use crate::agent::{catalogs, untrusted_code};
use crate::catalog::split::Plan;
use crate::catalog::table_policy::Policy;
use crate::remote::quote::{ident, ident_as_needed, literal, qualified, qualified_as_needed, text_array};
use crate::remote::{Connection, RemoteError, number};
use crate::server::txn::in_one;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::unregistered;
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of tables that are checked: an operator with more of them has got some findings by then.
const TABLES: usize = 200;

const NO_TABLE: &str = "not all of it is a table";
const PLAIN: &str = include_str!("../../../sql/check/plain.sql");
const OF_PARTITIONS: &str = "SELECT p.n FROM unnest($1::text[]) WITH ORDINALITY p (name, n)
    JOIN pg_class c ON c.oid = to_regclass(p.name) AND c.relispartition";

/// Why tables whose rows stay are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why<'a> {
    /// Functions name them. The functions change rows of the listed tables, or delete them, or read what they have
    /// inserted: these tables change while a split copies, so the current rows of both sides prove nothing.
    Named(&'a BTreeSet<String>),
    /// Functions return what they make of the tables' rows: whose statements put that into the moving tables is
    /// unknown.
    Counted,
    /// Foreign keys of the moving tables reference them: which keys exist is checked elsewhere.
    Referenced,
    /// Views over the moving tables read them.
    Shown,
}

impl Why<'_> {
    fn text(self) -> &'static str {
        match self {
            Why::Named(_) => "is named by functions that writes to the moving tables call",
            Why::Counted => "is what functions count by that clients may call",
            Why::Referenced => "is referenced by the moving tables",
            Why::Shown => "is read by views over the moving tables",
        }
    }

    /// Returns what ends the remark for good; for a table of another keyspace, what moves its rows as well.
    fn mended(self, table: &str, other: Option<&String>, plan: &Plan) -> String {
        let (keyspace, origin) = (literal(&plan.keyspace), literal(&plan.source.shard_key));
        if let Some(other) = other {
            return format!("a split of keyspace {} moves its rows", ident(other));
        }
        match self {
            Why::Named(_) | Why::Counted | Why::Shown => format!(
                "if that is right, SELECT shard_table_add({table}, NULL, {keyspace}, policy => 'global') declares it"
            ),
            Why::Referenced => format!(
                "SELECT shard_table_add({table}, NULL, {keyspace}, policy => 'reference', origin => {origin}) keeps them alike"
            ),
        }
    }

    fn is_counted(self, table: &str) -> bool {
        match self {
            Why::Named(counted) => counted.contains(table),
            Why::Counted => true,
            Why::Referenced | Why::Shown => false,
        }
    }

    /// Returns how many rows of one table are compared.
    fn most(self) -> usize {
        match self {
            Why::Named(_) | Why::Counted | Why::Shown => 1_000,
            Why::Referenced => 10_000,
        }
    }
}

/// Checks the tables. `tables`: by schema and name on the source; each, or a view of its name, is on the target.
pub fn check(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &[(String, String)],
    why: Why<'_>,
) -> Result<Vec<Finding>> {
    let (places, registered) = (Places::of(plan), Registered::of(plan));
    let mut findings = Vec::new();
    for place in registered.open(source, tables)? {
        let (schema, table) = place;
        let most = why.most();
        let here = rows(source, plan, Side::Source, &TableNames::one(schema, table), most)?;
        let there = TableNames::one(&places.there(schema), table);
        let is_counted = why.is_counted(table);
        let what = match &here {
            Ok((0, _)) if !is_counted => continue,
            Ok((n, _)) if *n > most => others(&format!("more than {most} rows")),
            Ok(found) if rows(target, plan, Side::Target, &there, most)?.as_ref() == Ok(found) => {
                if is_counted {
                    "these functions write to it while the split runs, and their changes on the source, for example of a counter, stay there".to_owned()
                } else {
                    continue;
                }
            }
            Ok((n, _)) => others(&counted(*n, "row", "rows")),
            Err(problem) => format!("its rows, which stay, are not compared ({problem})"),
        };
        findings.push(registered.finding(plan, place, why, |name, keyspace| {
            format!("{name} {} and is {keyspace}: {what}", why.text())
        }));
    }
    Ok(findings)
}

/// Returns findings for those of the tables by which keys are counted whose rows stay.
pub fn counters(plan: &Plan, source: &mut Connection, tables: &[(String, String)]) -> Result<Vec<Finding>> {
    let registered = Registered::of(plan);
    let finding = |place: &(String, String)| {
        registered.finding(plan, place, Why::Counted, |name, keyspace| {
            format!("functions count by table {name}, which is {keyspace}, so that it stays")
        })
    };
    Ok(registered.open(source, tables)?.into_iter().map(finding).collect())
}

fn others(many: &str) -> String {
    format!("it has {many}, which stay, and the target has others")
}

/// Tables that policies name, by schema and name on the source.
struct Registered {
    /// Those of the split's keyspace, and those of others that are configured to stay.
    here: BTreeSet<(String, String)>,
    /// Those of other keyspaces, with the keyspace.
    elsewhere: BTreeMap<(String, String), String>,
}

impl Registered {
    fn of(plan: &Plan) -> Registered {
        let TableNames { schemas, names } = TableNames::of(plan, Side::Source);
        let (others, keyless) = in_one(|| unregistered::registered(plan, &plan.source));
        let mut here: BTreeSet<(String, String)> = schemas.into_iter().zip(names).chain(keyless).collect();
        let mut elsewhere = BTreeMap::new();
        for table in others {
            let place = (table.schema, table.name);
            if table.policy == Policy::Global {
                here.insert(place);
            } else {
                elsewhere.insert(place, table.keyspace);
            }
        }
        Registered { here, elsewhere }
    }

    /// Returns the first of the tables that neither move nor are configured to stay, without partitions.
    fn open<'a>(
        &self,
        source: &mut Connection,
        tables: &'a [(String, String)],
    ) -> Result<Vec<&'a (String, String)>> {
        let open = tables.iter().filter(|table| !self.here.contains(table)).take(TABLES);
        let open: Vec<&(String, String)> = open.collect();
        let parts = parts(source, &open)?;
        let whole = open.into_iter().enumerate().filter(|(number, _)| !parts.contains(number));
        Ok(whole.map(|(_, table)| table).collect())
    }

    /// Returns the remark about a table that stays; `what` says of its name and its keyspace what is wrong.
    fn finding(
        &self,
        plan: &Plan,
        place: &(String, String),
        why: Why<'_>,
        what: impl FnOnce(&str, &str) -> String,
    ) -> Finding {
        let (schema, table) = place;
        let text = qualified_as_needed(schema, table);
        let name = if *schema == plan.source.namespace { ident_as_needed(table) } else { text.clone() };
        let other = self.elsewhere.get(place);
        let keyspace =
            other.map_or("in no keyspace".to_owned(), |name| format!("of keyspace {}", ident(name)));
        let mended = why.mended(&literal(&name), other, plan);
        let detail = format!("{}; {mended}", what(&text, &keyspace));
        Finding::remark_of(plan.reverse_of, Remark::NamedTables, &text, detail)
    }
}

/// Returns which are partitions: a table that is checked itself covers them.
fn parts(source: &mut Connection, tables: &[&(String, String)]) -> Result<BTreeSet<usize>> {
    let names: Vec<String> = tables.iter().map(|(schema, table)| qualified(schema, table)).collect();
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = source.query(OF_PARTITIONS, &[Some(&text_array(&names))])?;
    Ok(rows.column().filter_map(|position| number::index(&position)).collect())
}

/// Returns how many rows there are, of the first ones, and what they are; or why they cannot be read. The owner of a
/// table may be anybody, and a query is planned with code that the owner has added: so the table is locked and checked
/// like the moving tables, and one whose owner owns none of these is not read at all. Its rows are not cast, since the
/// owner could have defined the cast.
fn rows(
    session: &mut Connection,
    plan: &Plan,
    side: Side,
    table: &TableNames,
    most: usize,
) -> Result<std::result::Result<(usize, String), String>> {
    let name = table.qualified(0).unwrap_or_default();
    let query = format!(
        "SELECT pg_catalog.count(*), pg_catalog.md5(pg_catalog.string_agg(r.row, '' ORDER BY r.row COLLATE pg_catalog.\"C\"))
           FROM (SELECT pg_catalog.md5(pg_catalog.textin(pg_catalog.record_out(t.*))) AS row FROM {name} t LIMIT {}) r",
        most + 1
    );
    let found = session.undone(|session| {
        session.run(&format!("LOCK TABLE {name} IN ACCESS SHARE MODE"))?;
        match look(session, plan, side, table, &name)? {
            NamedRowsLook::Unread(why) => Ok(Err(why)),
            NamedRowsLook::Empty => Ok(Ok(None)),
            NamedRowsLook::May => session.query(&query, &[]).map(|rows| Ok(Some(rows))),
        }
    });
    match found {
        Ok(Err(why)) => Ok(Err(why)),
        Ok(Ok(found)) => {
            let row = found.and_then(|found| found.rows.into_iter().next()).unwrap_or_default();
            let count = row.first().cloned().flatten().and_then(|count| count.parse().ok()).unwrap_or(0);
            Ok(Ok((count, row.get(1).cloned().flatten().unwrap_or_default())))
        }
        // A foreign table, or a materialized view in a table's place, is not locked.
        Err(error) if error.is("42809") => Ok(Err(NO_TABLE.to_owned())),
        // Another session may hold it for long.
        Err(error) if error.is_verdict() || error.is("55P03") => Ok(Err(error.message)),
        Err(error) => Err(SplitError::from(error)),
    }
}

/// The result of checking a table, which is locked, before it is read.
enum NamedRowsLook {
    May,
    Empty,
    Unread(String),
}

fn look(
    session: &mut Connection,
    plan: &Plan,
    side: Side,
    table: &TableNames,
    name: &str,
) -> std::result::Result<NamedRowsLook, RemoteError> {
    let trusted = side.of(plan.trusted.each_ref());
    let [schemas, names, owners] = TableNames::of(plan, side).lists_with(trusted);
    let plain = session.query(PLAIN, &catalogs::given(&[name, &schemas, &names, &owners]))?;
    let is = |cell: &Option<String>| cell.as_deref() == Some("t");
    match plain.rows.first().map(Vec::as_slice) {
        Some([is_plain, _, is_empty]) if is(is_plain) && is(is_empty) => return Ok(NamedRowsLook::Empty),
        Some([is_plain, None, _]) if is(is_plain) => {}
        Some([is_plain, Some(owner), _]) if is(is_plain) => {
            let why = format!("it belongs to {owner}, who owns none of the moving tables");
            return Ok(NamedRowsLook::Unread(why));
        }
        None | Some(_) => return Ok(NamedRowsLook::Unread(NO_TABLE.to_owned())),
    }
    let code = untrusted_code::find_in(session, table, trusted, &NamedThings::none())?.code;
    let why = |code: &untrusted_code::Code| {
        format!("the mover would run untrusted code of {}: {}", code.owner, code.text())
    };
    Ok(code.first().map_or(NamedRowsLook::May, |code| NamedRowsLook::Unread(why(code))))
}
