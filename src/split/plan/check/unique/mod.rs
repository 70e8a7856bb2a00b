//! Keys that hold over all rows of a table and do not contain the shard-by column: over several shards only the makers
//! of their values can keep them unique. Each finding shows how the values are made, whether both sides' sequences can
//! give out the same number, and whether the moving values are on the target already.

mod comes;
mod drawn;
mod index;
mod values;

use crate::agent::error::Result;
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::agent::shape::TableShape;
use crate::agent::table_names::TableNames;
use crate::catalog::split::Plan;
use crate::numbers::behind::{NumberBehind, NumberEnd};
use crate::numbers::{self, introspect};
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::sequences::functions;
use crate::split::sequences::survey::{SurveyRead, schemas};
use comes::{Comes, Fillers, MetValues};
use drawn::DrawnTable;
use index::{NAME, UniqueIndex};

pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
    read: [SurveyRead; 2],
) -> Result<Vec<Finding>> {
    let (on_source, on_target) = (&mut source.session, &mut target.session);
    let shapes =
        [&source.observation, &target.observation].map(|side| side.tables.iter().collect::<Vec<_>>());
    let Some(keys) = SideKeys::of(on_source, on_target, plan)? else { return Ok(Vec::new()) };
    let [here, mut there] = read;
    // These were not read for the target yet.
    if here.draws.iter().any(|draw| !draw.is_sure()) {
        let oids: Vec<Option<&str>> = shapes[1].iter().map(|table| table.oid.as_deref()).collect();
        there.draws.extend(functions::of_writers(on_target, &oids, &schemas(plan, Side::Target))?.draws);
    }
    let fillers = fillers(plan, on_source, on_target, &shapes, [here, there])?;
    let SideKeys { from, to } = keys;
    let mut values = values::UniqueValues::begin(plan, &to, on_target)?;
    let mut findings = Vec::new();
    for index in &to {
        let comes = fillers.of(index, Side::Target, &from);
        findings.push(of_one_row(index).unwrap_or_else(|| how(plan, index, &comes)));
        let is_on_both = from.iter().any(|other| other.is_like(index));
        findings.extend(values.try_all(index, is_on_both, source, target)?);
    }
    // Rows that a reverse split brings back must satisfy these.
    for index in from.iter().filter(|index| !to.iter().any(|other| other.is_like(index))) {
        findings.push(how(plan, index, &fillers.of(index, Side::Source, &from)));
    }
    findings.extend(behind(plan, fillers, source, target)?);
    Ok(findings)
}

/// Checks before the cutover, since sequences may have been set or altered since the check. Returns a finding that
/// stops a split.
pub fn since_check(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    shapes: [Vec<&TableShape>; 2],
) -> Result<Option<Finding>> {
    // A reverse split must stay possible.
    let Some(SideKeys { from, to }) =
        SideKeys::of(source, target, plan)?.filter(|_| plan.reverse_of.is_none())
    else {
        return Ok(None);
    };
    let oids =
        shapes.each_ref().map(|side| side.iter().map(|table| table.oid.as_deref()).collect::<Vec<_>>());
    let read = [
        functions::find(source, &oids[0], &schemas(plan, Side::Source))?.into_read(),
        functions::find(target, &oids[1], &schemas(plan, Side::Target))?.into_read(),
    ];
    let fillers = fillers(plan, source, target, &shapes, read)?;
    let is_new = |index: &&UniqueIndex| !to.iter().any(|other| other.is_like(index));
    let of_target = to.iter().map(|index| (index, Side::Target));
    let all = of_target.chain(from.iter().filter(is_new).map(|index| (index, Side::Source)));
    let found = all.filter(|(index, _)| of_one_row(index).is_none());
    let mut found = found.map(|(index, side)| how(plan, index, &fillers.of(index, side, &from)));
    Ok(found.find(|finding| !finding.ok && finding.object.is_none()))
}

/// The keys of both sides.
struct SideKeys {
    from: Vec<UniqueIndex>,
    to: Vec<UniqueIndex>,
}

impl SideKeys {
    /// Returns None if there are none.
    fn of(source: &mut Connection, target: &mut Connection, plan: &Plan) -> Result<Option<SideKeys>> {
        let keys = SideKeys {
            from: index::of(source, &TableNames::keyed_lists(plan, Side::Source))?,
            to: index::of(target, &TableNames::keyed_lists(plan, Side::Target))?,
        };
        Ok(Some(keys).filter(|keys| !keys.from.is_empty() || !keys.to.is_empty()))
    }
}

fn fillers(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    [ours, theirs]: &[Vec<&TableShape>; 2],
    [here, there]: [SurveyRead; 2],
) -> Result<Fillers> {
    Ok(Fillers {
        sides: [
            filling(plan, Side::Source, source, ours, here)?,
            filling(plan, Side::Target, target, theirs, there)?,
        ],
        is_one_place: introspect::place_of(source)? == introspect::place_of(target)?,
    })
}

fn filling(
    plan: &Plan,
    side: Side,
    session: &mut Connection,
    shapes: &[&TableShape],
    read: SurveyRead,
) -> Result<comes::UniqueSide> {
    let tables = TableNames::of(plan, side).names.into_iter().zip(&plan.tables);
    Ok(comes::UniqueSide {
        sequences: introspect::of_tables(session, &TableNames::keyed_lists(plan, side))?,
        drawn: drawn::of(session, read.draws)?,
        doings: read.doings,
        tables: tables
            .map(|(name, policy)| DrawnTable {
                name,
                shard_by: policy.shard_by.clone(),
                maps: policy.maps.clone(),
            })
            .collect(),
        names: shapes.iter().map(|table| table.name.clone()).collect(),
    })
}

/// Finds numbers in rows of either side that a sequence with numbers of its own will give out later, as after a
/// restore.
fn behind(
    plan: &Plan,
    fillers: Fillers,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
) -> Result<Vec<Finding>> {
    let tables = |side: &ObservedSide| {
        side.observation.tables.iter().map(|table| table.oid.as_ref().map(|_| table.name.clone())).collect()
    };
    let [here, there] = fillers.sides.map(|side| side.sequences);
    let mut ends = [
        NumberEnd { tables: tables(source), session: &mut source.session, sequences: here },
        NumberEnd { tables: tables(target), session: &mut target.session, sequences: there },
    ];
    let hint =
        format!("SELECT * FROM shard_sequences_spread({}) gives it other numbers.", literal(&plan.keyspace));
    let finding = |behind: NumberBehind| refused(plan, behind.text(), &hint);
    Ok(numbers::behind::find(&mut ends)?.into_iter().map(finding).collect())
}

/// Returns the finding about values that may meet. A reverse split must stay possible.
fn refused(plan: &Plan, detail: String, hint: &str) -> Finding {
    match plan.reverse_of {
        Some(_) => Finding::note(NAME, detail, hint),
        None => Finding::new(NAME, false, detail, hint),
    }
}

/// Returns the finding: where the values come from, and whether that keeps shards apart.
fn how(plan: &Plan, index: &UniqueIndex, comes: &Comes) -> Finding {
    let text = index.text();
    let shard_by = plan.tables.get(index.position).map_or("", |table| table.shard_by.as_str());
    match comes {
        Comes::Met(MetValues { from, to, number, by, through, is_sure }) => {
            let who = by.as_ref().map_or_else(String::new, |by| format!(", which {by} uses"));
            let through = through.as_ref().map_or_else(String::new, |text| format!("; {text}"));
            let detail = format!(
                "{text}: sequences {from} of the source and {to} of the target may both give out {number}{who}{through}"
            );
            if !is_sure {
                let detail = format!(
                    "{detail}; it is not known whether it is used in the key: give each shard's sequence numbers of its own, as in docs/guides/identifiers.md"
                );
                return Finding::remark_of(plan.reverse_of, Remark::SequencesOfFunctions, to, detail);
            }
            // Which column a function fills is not certain: the operator separates the numbers.
            let hint = match by {
                Some(_) => format!(
                    "Add column \"{shard_by}\" to the key. Or give each shard's sequence numbers of its own, as in docs/guides/identifiers.md: ALTER SEQUENCE .. MINVALUE .. MAXVALUE .. START .. RESTART."
                ),
                None => format!(
                    "SELECT * FROM shard_sequences_spread({}) gives each shard numbers of its own. Or add column \"{shard_by}\" to the key.",
                    literal(&plan.keyspace)
                ),
            };
            refused(plan, detail, &hint)
        }
        Comes::Apart(what) => Finding::new(NAME, true, format!("{text}: {what}"), ""),
        Comes::ApartForNow(what, hint) => Finding::note(NAME, format!("{text}: {what}"), hint),
        Comes::Application(what) => Finding::note(
            NAME,
            format!("{text}: {what}"),
            "No shard knows the values of the others. The application must keep them apart. See docs/guides/identifiers.md.",
        ),
    }
}

/// Returns the finding for a row that every shard has once, so that it is not unique.
fn of_one_row(index: &UniqueIndex) -> Option<Finding> {
    let is_of_few = index.is_constant || index.parts.iter().all(|part| part.is_boolean);
    is_of_few.then(|| {
        Finding::note(
            NAME,
            format!("{}: allows one row, or one for each of a few values, in the whole system, which several shards cannot enforce", index.text()),
            "Each shard will allow as many. Add the shard-by column to it, or move what it counts to a reference table.",
        )
    })
}
