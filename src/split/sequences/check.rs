//! The findings of the check about sequences, before anything moves.

use crate::agent::error::{Result, SplitError};
use crate::agent::observed_side::ObservedSide;
use crate::agent::session::Side;
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::{array_of, ident_as_needed, literal, qualified};
use crate::split::finding::Finding;
use crate::split::remark::Remark;
use crate::split::sequences::doubts::SequenceDoubt;
use crate::split::sequences::draw::SequenceName;
use crate::split::sequences::pair::{SequencePair, SequenceProblem};
use crate::split::sequences::positions::{self, SequencePosition};
use crate::split::sequences::survey::{self, Survey, SurveyRead, TableNumbers};
use crate::split::sequences::unfollowed::Unfollowed;
use crate::split::sequences::{beyond, by_key, make, named};
use crate::words::counted;
use std::collections::BTreeMap;

const NAME: &str = "target: sequences";

pub fn check(
    plan: &Plan,
    source: &mut ObservedSide,
    target: &mut ObservedSide,
) -> Result<(Vec<Finding>, [SurveyRead; 2])> {
    let oids = |side: &ObservedSide| -> Vec<Option<String>> {
        side.observation.tables.iter().map(|table| table.oid.clone()).collect()
    };
    let (here, there) = (oids(source), oids(target));
    let is_on_both = |position: usize| {
        here.get(position).is_some_and(Option::is_some) && there.get(position).is_some_and(Option::is_some)
    };
    let only = |all: &'_ [Option<String>]| -> Vec<Option<String>> {
        all.iter().enumerate().map(|(position, oid)| oid.clone().filter(|_| is_on_both(position))).collect()
    };
    let (here, there) = (only(&here), only(&there));
    let tables = TableNumbers {
        source: here.iter().map(Option::as_deref).collect(),
        target: there.iter().map(Option::as_deref).collect(),
    };
    let mut found = survey::survey(plan, &mut source.session, &mut target.session, &tables)?;
    unfit(&mut source.session, &mut target.session, &mut found)?;
    let mut findings = beyond::check(plan, source, target, &found)?;
    let ObservedSide { session: source, .. } = source;
    let ObservedSide { session: target, observation: on_target, .. } = target;
    let schemas = survey::schemas(plan, Side::Source);
    findings.extend(named::check(plan, source, target, &schemas, &found)?);
    findings.extend(of_unfollowed(plan, &found.unfollowed));
    let name_of = |table: Option<usize>| {
        table.and_then(|table| on_target.tables.get(table)).map(|table| table.name.as_str())
    };
    let mut tell = |ok: bool, SequenceProblem { table, text, hint }: SequenceProblem| {
        let text = match name_of(table) {
            Some(name) => format!("{name}: {text}"),
            None => text,
        };
        findings.push(if ok {
            Finding::note(NAME, text, &hint)
        } else {
            Finding::new(NAME, false, text, &hint)
        });
    };
    let Survey { problems, remarks, to_make, unknown, undecided, doubts, by_less, read, .. } = found;
    problems.into_iter().for_each(|problem| tell(false, problem));
    remarks.into_iter().for_each(|remark| tell(true, remark));
    for (wanted, why) in make::may_not(source, target, &to_make)? {
        let text = format!(
            "sequence {} is missing on the target, {}, and cannot be created there: {why}",
            wanted.name(),
            wanted.why()
        );
        tell(
            false,
            SequenceProblem {
                table: None,
                text,
                hint: format!("Create it on the target. {}", make::MAY_MAKE),
            },
        );
    }
    if let Some(first) = unknown.first() {
        let count = unknown.len();
        let (many, examples) =
            (if count == 1 { "sequence" } else { "sequences" }, by_key::examples(&unknown));
        let text = format!("{count} {many} of the source that nothing known uses: {examples}");
        let name = qualified(&first.schema, &first.relname);
        let hint = format!(
            "If clients use one for rows that move: SELECT shard_sequence_add({}, {}).",
            literal(&name),
            literal(&plan.keyspace)
        );
        tell(true, SequenceProblem { table: None, text, hint });
    }
    findings.extend(of_unknown_keys(plan, &undecided));
    for (remark, doubts) in [(Remark::SequencesOfFunctions, doubts.all), (Remark::Lacking, by_less)] {
        let finding = |SequenceDoubt { sequence, text }: SequenceDoubt| {
            Finding::remark_of(plan.reverse_of, remark, &sequence, text)
        };
        findings.extend(doubts.into_iter().map(finding));
    }
    Ok((findings, read))
}

/// Checks before the cutover what was judged by texts, since it may have changed: what a check would remark on now.
pub fn again(
    plan: &Plan,
    source: &mut Connection,
    target: &mut Connection,
    tables: &TableNumbers<'_>,
) -> Result<Vec<Finding>> {
    let found = survey::survey(plan, source, target, tables)?;
    let mut findings = of_unfollowed(plan, &found.unfollowed);
    findings.extend(of_unknown_keys(plan, &found.undecided));
    findings.extend(named::counters(plan, source, &survey::schemas(plan, Side::Source), &found)?);
    Ok(findings)
}

/// Returns a finding for each column and each function that gives it values.
fn of_unfollowed(plan: &Plan, unfollowed: &[Unfollowed]) -> Vec<Finding> {
    let mut why: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in unfollowed {
        let table = plan.tables.get(one.table).map_or("", |table| table.table_name.as_str());
        let who = one.who.strip_prefix("function ").unwrap_or(&one.who);
        for column in &one.columns {
            let known = why.entry(format!("{table}.{} by {who}", ident_as_needed(column))).or_default();
            if !known.contains(&one.why) {
                known.push(one.why.clone());
            }
        }
    }
    let finding = |(object, why): (String, Vec<String>)| {
        let text = format!(
            "{object}, which {}: it is not known where these values of a key come from, and the target may give them out again. If it is a sequence, SELECT shard_sequence_add() with its name has it raised; a table that counts must move, or be set there",
            why.join(" and ")
        );
        Finding::remark_of(plan.reverse_of, Remark::KeysUnfollowed, &object, text)
    };
    why.into_iter().map(finding).collect()
}

/// Returns a finding for sequences that are made for keys, perhaps for moving ones: the operator names one, or accepts
/// that there is none.
fn of_unknown_keys(plan: &Plan, undecided: &[SequenceName]) -> Option<Finding> {
    let first = undecided.first()?;
    let text = format!(
        "functions may use {} of the source by names that they build: {}; it is not known whether one of them is used for a moving key and missing on the target: SELECT shard_sequence_add() adds one that is to be raised there",
        counted(undecided.len(), "sequence", "sequences"),
        by_key::examples(undecided)
    );
    let object = ident_as_needed(&first.schema);
    Some(Finding::remark_of(plan.reverse_of, Remark::SequencesOfKeys, &object, text))
}

/// Finds those that cannot be set to the source's position; for each table the first.
fn unfit(source: &mut Connection, target: &mut Connection, found: &mut Survey) -> Result<()> {
    // A role that may not set it may not be able to read it either.
    let names = array_of(found.pairs.iter().map(|pair| Some(pair.to.oid.as_str())));
    let odd = target.query(
        "SELECT c.oid, CASE WHEN NOT pg_has_role(c.relowner, 'USAGE') THEN c.relowner::regrole END,
                CASE WHEN c.relpersistence = 'u' THEN true END
           FROM unnest($1::oid[]) n (oid) JOIN pg_class c ON c.oid = n.oid
          WHERE NOT pg_has_role(c.relowner, 'USAGE') OR c.relpersistence = 'u'",
        &[Some(&names)],
    )?;
    let of_target = |pair: &SequencePair, cell: usize| {
        let is_it =
            |row: &&Vec<Option<String>>| row.first().is_some_and(|oid| oid.as_deref() == Some(&pair.to.oid));
        odd.rows.iter().find(is_it).and_then(|row| row.get(cell).cloned().flatten())
    };
    let mut readable: Vec<SequencePair> = Vec::new();
    for pair in &found.pairs {
        let name = &pair.to.name;
        let belongs = of_target(pair, 1).map(|owner| {
            let hint = format!("ALTER SEQUENCE is for owners. GRANT {owner} TO the mover's role.");
            (format!("sequence {name} belongs to {owner}"), hint)
        });
        let unlogged = of_target(pair, 2).map(|_| {
            let text =
                format!("sequence {name} is not logged: after a crash it would give out numbers again");
            (text, format!("ALTER SEQUENCE {name} SET LOGGED on the target."))
        });
        match positions::not_to_be_set(pair).or(belongs).or(unlogged) {
            Some((text, hint)) => found.problems.push(SequenceProblem { table: pair.table, text, hint }),
            None => readable.push(pair.clone()),
        }
    }
    let mut ask = |pairs: &[SequencePair]| {
        let asks = positions::questions(pairs).unwrap_or_default();
        source.undone(|source| target.undone(|target| positions::ask(source, target, pairs, &asks)))
    };
    match ask(&readable) {
        Ok(all) => readable.iter().zip(&all).for_each(|(pair, position)| found.judge(pair, position)),
        // Asking for each one alone shows which of them the error belongs to.
        Err(SplitError::Remote(error)) if error.is_verdict() => {
            for pair in &readable {
                match ask(std::slice::from_ref(pair)) {
                    Ok(all) => all.iter().for_each(|position| found.judge(pair, position)),
                    Err(SplitError::Remote(error)) if error.is_verdict() => {
                        found.problems.push(SequenceProblem {
                            table: pair.table,
                            text: error.message,
                            hint: "Grant the sequence's owner to the mover.".to_owned(),
                        })
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

impl Survey {
    fn judge(&mut self, pair: &SequencePair, position: &SequencePosition) {
        let problem = |(text, hint): (String, String)| SequenceProblem { table: pair.table, text, hint };
        if let Some(to_come) = positions::to_come(pair, position) {
            self.to_come.insert(pair.to.oid.clone(), to_come);
        }
        let by_less = positions::by_less(pair, position);
        self.by_less.extend(by_less.map(|text| SequenceDoubt { sequence: pair.to.name.clone(), text }));
        match positions::unfit(pair, position).or_else(|| positions::used_up(pair, position)) {
            Some(why) if pair.is_sure => self.problems.push(problem(why)),
            Some((why, _)) => self.doubts.add_pair(pair, &why),
            None => {
                let notes = [positions::scarce(pair, position), positions::otherwise_called(pair)];
                self.remarks.extend(notes.into_iter().flatten().map(problem));
            }
        }
    }
}
