//! Sequences of moving tables: the target's are raised past the source's, so that
//! no identifier is given out twice.

use super::counter::{State, out_of_reach};
use crate::agent::catalogs;
use crate::agent::error::{Result, SplitError};
use crate::error::SqlState;
use crate::remote::quote::{array_of, literal};
use crate::remote::result::Rows;
use crate::remote::{Connection, RemoteError};
use crate::server::wait;
use crate::split::engine::Engine;
use crate::split::table::Table;
use std::time::{Duration, Instant};

/// Sequences that fill columns of tables: owned by them, or called in a default. The last
/// column: the table's owner, where he may not set the sequence himself. A default of his that
/// draws from somebody else's does not have it raised. What depends on a table and what its defaults depend on have
/// an index each; with both in one condition all that depends on anything was read, a third of a second for 150 tables.
const OF_TABLES: &str = "
    SELECT w.position, a.attname, s.oid, format('%I.%I', n.nspname, s.relname),
           CASE WHEN NOT pg_has_role(t.relowner, s.relowner, 'USAGE')
                 AND NOT has_sequence_privilege(t.relowner, s.oid, 'UPDATE') THEN t.relowner::regrole END
      FROM unnest($1::oid[]) WITH ORDINALITY w (relation, position)
     CROSS JOIN LATERAL (
        SELECT p.refobjsubid, p.objid FROM pg_depend p
         WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = w.relation
           AND p.classid = 'pg_class'::regclass AND p.deptype IN ('a', 'i')
        UNION
        SELECT d.adnum, p.refobjid FROM pg_attrdef d
         CROSS JOIN LATERAL (
            SELECT * FROM pg_depend p
             WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass OFFSET 0) p
         WHERE d.adrelid = w.relation) f (attnum, sequence)
      JOIN pg_class s ON s.oid = f.sequence AND s.relkind = 'S'
      JOIN pg_attribute a ON a.attrelid = w.relation AND a.attnum = f.attnum AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_class t ON t.oid = w.relation
      JOIN pg_namespace n ON n.oid = s.relnamespace
     ORDER BY 1, 2, 4";

/// What it is prepared as, and what asks where the sequences are that are known.
const WHICH: &str = "sequences";
const WHERE: &str = "positions";

/// A sequence that fills a column.
#[derive(PartialEq, Eq)]
struct Filler {
    /// The table's position in the list that was asked for.
    table: String,
    column: String,
    /// Its number.
    oid: String,
    /// Qualified and quoted.
    sequence: String,
    /// Who owns the table, and may not set it.
    may_not: Option<String>,
}

/// Those of one column on both sides.
#[derive(PartialEq, Eq)]
struct Pair {
    from: Filler,
    to: Filler,
}

/// How far a sequence of the target is set ahead of the source's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// By the margin.
    Enough,
    /// By twice of it, so that nothing is left to be done within the fence: what has drawn
    /// from the sequence there keeps it from being raised until its transaction ends.
    Plenty,
}

/// Raises every sequence of the target to where the source's is, plus a margin. Until the
/// deadline it waits for those who have drawn from one.
pub fn raise(engine: &mut Engine, ahead: Ahead, deadline: Instant) -> Result<Known> {
    let lists = lists(&oids(engine));
    let (control, target) = (&mut engine.control, &mut engine.target);
    let pairs = pairs_of(control, target, &lists)?;
    let mut known = Known { pairs, lists, asks: [String::new(), String::new()] };
    known.prepare(control, target)?;
    let positions = positions(control, target, &known.pairs, &known.asks)?;
    if raise_all(target, &known.pairs, positions, ahead, deadline)? {
        // What was raised is planned anew once more, which is not to be behind the fence.
        target.run(&known.asks[1])?;
    }
    Ok(known)
}

fn oids(engine: &Engine) -> Vec<Oids<'_>> {
    engine
        .tables
        .iter()
        .map(|Table { source, target, .. }| (source.oid.as_deref(), target.oid.as_deref()))
        .collect()
}

/// The tables of both sides, as arrays.
fn lists(tables: &[Oids<'_>]) -> [String; 2] {
    [array_of(tables.iter().map(|(oid, _)| *oid)), array_of(tables.iter().map(|(_, oid)| *oid))]
}

/// The sequences that were raised before the fence. Behind it both servers are asked again which they are, and in the
/// same message how far these are.
pub struct Known {
    pairs: Vec<Pair>,
    lists: [String; 2],
    /// What asks the source and the target where they are; nothing, if there are none.
    asks: [String; 2],
}

impl Known {
    /// Writers wait for the answers, and for no plan.
    fn prepare(&mut self, source: &mut Connection, target: &mut Connection) -> Result<()> {
        if let Some([of_source, of_target]) = position_questions(&self.pairs) {
            source.prepare_anew(WHERE, &of_source)?;
            target.prepare_anew(WHERE, &of_target)?;
            self.asks = std::array::from_fn(|_| format!("EXECUTE {WHERE}"));
        }
        Ok(())
    }

    /// For the source and for the target.
    pub fn questions(&self, source: &mut Connection, target: &mut Connection) -> Result<[String; 2]> {
        let [of_source, of_target] = &self.lists;
        let which = [which(source, of_source)?, which(target, of_target)?];
        if self.pairs.is_empty() {
            return Ok(which);
        }
        let still = [
            still_sequences(self.pairs.iter().map(|pair| &pair.from)),
            still_sequences(self.pairs.iter().map(|pair| &pair.to)),
        ];
        Ok([0, 1].map(|side| format!("{}; {}; {}", which[side], still[side], self.asks[side])))
    }

    /// How many answers each of them gives.
    pub fn answers(&self) -> usize {
        if self.pairs.is_empty() { 1 } else { 3 }
    }

    /// Whether a server's message is about one of them.
    pub fn are_named_in(&self, message: &str) -> bool {
        let is_named = |sequence: &str| message.contains(&plain(sequence));
        self.pairs.iter().any(|pair| is_named(&pair.from.sequence) || is_named(&pair.to.sequence))
    }

    /// Raises them by the answers. Others than were known are asked for in their turn.
    pub fn raise(
        &self,
        engine: &mut Engine,
        [source, target]: [&[Rows]; 2],
        deadline: Instant,
    ) -> Result<()> {
        let known = |rows: &[Rows]| rows.first().map(fillers).unwrap_or_default();
        if paired(known(source), known(target)) != self.pairs {
            return raise(engine, Ahead::Enough, deadline).map(drop);
        }
        let (Some(values), Some(states)) = (source.get(2), target.get(2)) else { return Ok(()) };
        let positions = read_positions((&engine.control, values), (&engine.target, states), &self.pairs)?;
        raise_all(&mut engine.target, &self.pairs, positions, Ahead::Enough, deadline).map(drop)
    }
}

/// A quoted name as messages have it: without its quotes, in quotes of the message's own.
fn plain(name: &str) -> String {
    name.replace("\"\"", "\0").replace('"', "").replace('\0', "\"")
}

/// A table's on both sides.
pub type Oids<'a> = (Option<&'a str>, Option<&'a str>);

/// The same for some tables. Whatever their number, each server is asked twice, and both at once;
/// those sequences alone cost more that are to be raised.
pub fn raise_of_tables(
    source: &mut Connection,
    target: &mut Connection,
    tables: &[Oids<'_>],
    ahead: Ahead,
    deadline: Instant,
) -> Result<()> {
    let pairs = pairs_of(source, target, &lists(tables))?;
    let asks = position_questions(&pairs).unwrap_or_default();
    let positions = positions(source, target, &pairs, &asks)?;
    raise_all(target, &pairs, positions, ahead, deadline).map(drop)
}

/// Where a pair is on the source and on the target; None: it is not there any more.
type Position = (Option<i64>, Option<State>);

/// Whether there was anything to raise.
fn raise_all(
    target: &mut Connection,
    pairs: &[Pair],
    positions: Vec<Position>,
    ahead: Ahead,
    deadline: Instant,
) -> Result<bool> {
    let mut raises = Vec::new();
    for (pair, position) in pairs.iter().zip(positions) {
        if let (Some(value), Some(state)) = position {
            let statement = raise_one(target, pair, (value, state), ahead)?;
            raises.extend(statement.map(|statement| (pair.to.sequence.as_str(), statement)));
        }
    }
    let mut left = raises.as_slice();
    let are_any = !left.is_empty();
    while !left.is_empty() {
        let statements: Vec<String> = left.iter().map(|(_, statement)| statement.clone()).collect();
        let Err((raised, error)) = target.run_transactions(&statements) else { return Ok(are_any) };
        target.run("ROLLBACK")?;
        let Some(((sequence, statement), behind)) = left.get(raised..).and_then(<[_]>::split_first) else {
            return Err(error.into());
        };
        patiently(target, statement, sequence, deadline)?;
        left = behind;
    }
    Ok(are_any)
}

fn pairs_of(source: &mut Connection, target: &mut Connection, lists: &[String; 2]) -> Result<Vec<Pair>> {
    let asked = [which(source, &lists[0])?, which(target, &lists[1])?];
    source.send(&asked[0])?;
    target.send(&asked[1])?;
    let (from, to) = (source.finish_for_each(), target.finish_for_each());
    let of = |answers: Vec<Rows>| answers.first().map(fillers).unwrap_or_default();
    Ok(paired(of(from?), of(to?)))
}

/// The statements that ask which sequences tables have, of which one gives rows.
fn which(connection: &mut Connection, list: &str) -> Result<String> {
    Ok(catalogs::statements(connection, WHICH, OF_TABLES, &[Some(list)])?)
}

/// Sequences of the same column on both sides.
fn paired(from: Vec<Filler>, mut to: Vec<Filler>) -> Vec<Pair> {
    from.into_iter()
        .filter_map(|from| {
            let is_same = |to: &Filler| to.table == from.table && to.column == from.column;
            let counterpart = to.iter().position(is_same)?;
            Some(Pair { to: to.remove(counterpart), from })
        })
        .collect()
}

fn fillers(rows: &Rows) -> Vec<Filler> {
    let filler = |row: &Vec<Option<String>>| match <[_; 5]>::try_from(row.clone()) {
        Ok([Some(table), Some(column), Some(oid), Some(sequence), may_not]) => {
            Some(Filler { table, column, oid, sequence, may_not })
        }
        Ok(_) | Err(_) => None,
    };
    rows.rows.iter().filter_map(filler).collect()
}

/// What fails, and with it the rest of its message, where a name has come to be of something else since it was known: an owner
/// could have put a view there, whose functions the mover would run.
fn still_sequences<'a>(fillers: impl Iterator<Item = &'a Filler> + Clone) -> String {
    let oids = array_of(fillers.clone().map(|filler| Some(filler.oid.as_str())));
    let names = array_of(fillers.map(|filler| Some(filler.sequence.as_str())));
    format!(
        "SELECT (2147483647::int8 + (
             SELECT count(*) FROM unnest({}::oid[], {}::text[]) w (known, name)
              WHERE NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = w.known AND c.relkind = 'S' AND c.oid = to_regclass(w.name))))::int4",
        literal(&oids),
        literal(&names)
    )
}

/// The SQLSTATE of that.
pub const IS_OTHER: &str = "22003";

/// What the source is asked and what the target, where each of the sequences is; None: there are none.
fn position_questions(pairs: &[Pair]) -> Option<[String; 2]> {
    if pairs.is_empty() {
        return None;
    }
    let numbered = |query: &dyn Fn(&Pair) -> String| {
        let parts =
            pairs.iter().enumerate().map(|(number, pair)| format!("SELECT {number}, {}", query(pair)));
        parts.collect::<Vec<_>>().join(" UNION ALL ")
    };
    let target = numbered(&|pair| {
        let sequence = &pair.to.sequence;
        format!("{}::regclass, last_value FROM {sequence}", literal(sequence))
    });
    Some([
        numbered(&|pair| format!("last_value FROM {}", pair.from.sequence)),
        format!(
            "SELECT v.number, seqincrement, seqmin, seqmax, seqstart, v.now
               FROM ({target}) v (number, relation, now) JOIN pg_sequence ON seqrelid = v.relation"
        ),
    ])
}

fn positions(
    source: &mut Connection,
    target: &mut Connection,
    pairs: &[Pair],
    [of_source, of_target]: &[String; 2],
) -> Result<Vec<Position>> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    source.send(of_source)?;
    target.send(of_target)?;
    let (values, states) = (source.finish(), target.finish());
    read_positions((source, &values?), (target, &states?), pairs)
}

fn read_positions(
    (source, values): (&Connection, &Rows),
    (target, states): (&Connection, &Rows),
    pairs: &[Pair],
) -> Result<Vec<Position>> {
    let row_of = |rows: &Rows, number: usize| {
        let number = number.to_string();
        rows.rows.iter().find(|row| row.first().is_some_and(|cell| cell.as_deref() == Some(&number))).cloned()
    };
    let positions = pairs.iter().enumerate().map(|(number, pair)| {
        let value =
            row_of(values, number).map(|row| value_in(source, &pair.from.sequence, &row[1..])).transpose()?;
        let state =
            row_of(states, number).map(|row| state_in(target, &pair.to.sequence, &row[1..])).transpose()?;
        Ok((value, state))
    });
    positions.collect()
}

impl Filler {
    /// Of its table in the list that was asked for, where the server counts from 1.
    fn position(&self) -> Option<usize> {
        self.table.parse::<usize>().ok()?.checked_sub(1)
    }

    /// Why it is not raised, and what to do about it.
    fn not_to_be_set(&self) -> Option<(String, String)> {
        let (sequence, owner) = (&self.sequence, self.may_not.as_ref()?);
        let text = format!("sequence {sequence} may not be set by role {owner}, to whom the table belongs");
        let hint = format!(
            "It is raised for the owner of the table: GRANT UPDATE ON SEQUENCE {sequence} TO {owner}, or let another sequence fill the column."
        );
        Some((text, hint))
    }
}

/// Of each of some tables a sequence of the target that cannot be set to where the source's is: why, and
/// what to do.
pub fn find_unfit(
    source: &mut Connection,
    target: &mut Connection,
    tables: &[Oids<'_>],
) -> Result<Vec<Option<(String, String)>>> {
    let mut unfit: Vec<Option<(String, String)>> = vec![None; tables.len()];
    let pairs = pairs_of(source, target, &lists(tables))?;
    // Who may not set it may not read it either, perhaps.
    let names = array_of(pairs.iter().map(|pair| Some(pair.to.sequence.as_str())));
    let owners = target.query(
        "SELECT n.name, c.relowner::regrole FROM unnest($1::text[]) n (name)
           JOIN pg_class c ON c.oid = n.name::regclass WHERE NOT pg_has_role(c.relowner, 'USAGE')",
        &[Some(&names)],
    )?;
    let owner_of = |sequence: &str| {
        let of_it =
            |row: &&Vec<Option<String>>| row.first().is_some_and(|name| name.as_deref() == Some(sequence));
        owners.rows.iter().find(of_it).and_then(|row| row.get(1).cloned().flatten())
    };
    for Pair { to, .. } in &pairs {
        let belongs = owner_of(&to.sequence).map(|owner| {
            let hint = format!("GRANT {owner} TO the mover's role: ALTER SEQUENCE is for owners.");
            (format!("sequence {} belongs to {owner}", to.sequence), hint)
        });
        note(&mut unfit, to, to.not_to_be_set().or(belongs));
    }
    // Those of other tables can be read.
    let readable: Vec<Pair> = pairs.into_iter().filter(|pair| !is_noted(&unfit, &pair.to)).collect();
    let asks = position_questions(&readable).unwrap_or_default();
    for (pair, position) in readable.iter().zip(positions(source, target, &readable, &asks)?) {
        let (Some(value), Some(state)) = position else { continue };
        note(&mut unfit, &pair.to, out_of_reach(state, &pair.to.sequence, value));
    }
    Ok(unfit)
}

/// Of each table the first.
fn note(all: &mut [Option<(String, String)>], filler: &Filler, unfit: Option<(String, String)>) {
    let of_table = filler.position().and_then(|position| all.get_mut(position));
    if let (Some(of_table), Some(unfit)) = (of_table, unfit) {
        of_table.get_or_insert(unfit);
    }
}

fn is_noted(all: &[Option<(String, String)>], filler: &Filler) -> bool {
    filler.position().and_then(|position| all.get(position)).is_some_and(Option::is_some)
}

/// The numbers of a row, or what stands in their place.
fn numbers(connection: &Connection, sequence: &str, row: &[Option<String>]) -> Result<Vec<i64>> {
    let numbers: Option<Vec<i64>> = row.iter().map(|cell| cell.as_deref()?.parse().ok()).collect();
    Ok(numbers.ok_or_else(|| no_numbers(connection, sequence, row))?)
}

fn no_numbers(connection: &Connection, sequence: &str, row: &[Option<String>]) -> RemoteError {
    let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("nothing")).collect();
    RemoteError::no_number(connection.shard(), &format!("sequence {sequence}"), &cells.join(", "))
}

fn value_in(source: &Connection, sequence: &str, row: &[Option<String>]) -> Result<i64> {
    let value = numbers(source, sequence, row)?.first().copied();
    Ok(value.ok_or_else(|| no_numbers(source, sequence, row))?)
}

fn state_in(target: &Connection, sequence: &str, row: &[Option<String>]) -> Result<State> {
    let state = State::read(&numbers(target, sequence, row)?);
    Ok(state.ok_or_else(|| no_numbers(target, sequence, row))?)
}

/// The transaction that raises one; None: nothing is to be done. Only upwards, under the lock that ALTER
/// SEQUENCE takes: read and set apart, ids were given out twice. A sequence that counts down is raised
/// downwards.
fn raise_one(
    target: &Connection,
    Pair { to: filler, .. }: &Pair,
    (value, state): (i64, State),
    ahead: Ahead,
) -> Result<Option<String>> {
    let to = filler.sequence.as_str();
    let unfit = |(text, hint): (String, String)| {
        SplitError::failed(SqlState::NOT_IN_STATE, format!("shard \"{}\": {text}", target.shard()), hint)
    };
    if let Some(why) = out_of_reach(state, to, value) {
        return Err(unfit(why));
    }
    // Never lowered, so what is there is there for good: nobody has to be waited for.
    if state.has_passed(state.beyond(value, 1)) {
        return Ok(None);
    }
    if let Some(why) = filler.not_to_be_set() {
        return Err(unfit(why));
    }
    let wanted = state.next_of_its_own(state.beyond(value, if ahead == Ahead::Plenty { 2 } else { 1 }));
    let increment = state.increment;
    let behind = if state.is_up() { "<" } else { ">" };
    // DO runs as one statement: lock, compare, restart. Others who draw wait behind it.
    Ok(Some(format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms'; DO {}; COMMIT",
        literal(&format!(
            "BEGIN
                 ALTER SEQUENCE {to} INCREMENT BY {increment};
                 IF (SELECT last_value FROM {to}) {behind} {wanted} THEN
                     ALTER SEQUENCE {to} RESTART WITH {wanted};
                 END IF;
             END"
        ))
    )))
}

/// Short attempts, ever further apart, since whoever draws queues behind each of them: a
/// transaction that has drawn keeps the sequence until its end.
fn patiently(target: &mut Connection, statement: &str, sequence: &str, deadline: Instant) -> Result<()> {
    let mut pause = Duration::from_millis(50);
    let _said = wait::said();
    loop {
        match target.run(statement) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_lock_timeout() => {}
            Err(error) => return Err(error.into()),
        }
        target.run("ROLLBACK")?;
        let reason =
            format!("a transaction on shard \"{}\" that has drawn from sequence {sequence}", target.shard());
        if Instant::now() + pause > deadline {
            return Err(SplitError::Retry(reason));
        }
        wait::report(&reason);
        wait::sleep(pause);
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_names_without_quotes() {
        for (quoted, written) in [
            ("public.items_id_seq", "public.items_id_seq"),
            (r#"public."Items seq""#, "public.Items seq"),
            (r#""a""b"."""c""#, r#"a"b."c"#),
        ] {
            assert_eq!(plain(quoted), written);
        }
    }
}
