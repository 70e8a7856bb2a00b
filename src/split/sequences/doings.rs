//! What texts of functions do with names, read word by word: which columns they set, into which tables they write,
//! whether they draw by a name that they compose. Quotes are not treated as bounds, since a text may be run as a
//! statement.

use super::tokens::{
    RECORD,
    TextToken::{self, Sign, Word},
    argument, assigned, before_name, begins, fields, listed, statement, tokens, words,
};
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of assignments of one text that are read.
const MOST_VALUES: usize = 2_000;
/// The greatest number of calls of nextval() of one text whose names are followed to their parts.
const MOST_CALLS: usize = 200;
/// Functions that compose a text.
const BUILDERS: [&str; 8] =
    ["format", "concat", "concat_ws", "quote_ident", "replace", "string_agg", "regexp_replace", "lpad"];

/// What one text does, or several do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doings {
    /// Columns of records that are set, and the words of the statements that set them.
    assigned: BTreeMap<String, BTreeSet<String>>,
    /// Variables that are set, and the words of the statements that set them.
    variables: BTreeMap<String, BTreeSet<String>>,
    /// Functions that are called, by their names.
    pub called: BTreeSet<String>,
    /// Into which columns rows of tables are inserted. `None` stands for all columns.
    inserted: BTreeMap<String, Option<BTreeSet<String>>>,
    /// Tables whose rows are changed or deleted.
    pub changed: BTreeSet<String>,
    /// Names in other places than after INSERT INTO.
    pub mentioned: BTreeSet<String>,
    draws: Draws,
    builds: bool,
    /// For each call that draws by a composed name, the columns of a row that the name is made of.
    made_of: BTreeSet<BTreeSet<String>>,
}

/// How a text calls nextval().
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Draws {
    /// Never, or by names that it contains or that its trigger passes.
    #[default]
    Named,
    /// By the value of a variable.
    Variable,
    /// By a name that it composes.
    Made,
}

impl Doings {
    pub fn of(text: &str) -> Doings {
        let tokens = tokens(text);
        let mut doings = Doings::default();
        let (mut values, mut calls) = (0, Vec::new());
        let mut first: Option<&str> = None;
        for (at, token) in tokens.iter().enumerate() {
            let Word(word) = token else {
                doings.builds |= *token == Sign('|') && tokens.get(at + 1) == Some(&Sign('|'));
                // This is an assignment, also in a declaration: `n bigint := ..`.
                let is_set = *token == Sign(':') && tokens.get(at + 1) == Some(&Sign('='));
                if let Some(name) = first.filter(|_| is_set && values < MOST_VALUES) {
                    values += 1;
                    doings.variables.entry(name.to_owned()).or_default().extend(statement(&tokens, at));
                }
                continue;
            };
            if begins(&tokens, at) {
                first = Some(word.as_str()).filter(|_| tokens.get(at + 1) != Some(&Sign('.')));
            }
            if let Some((name, is_of_record)) = assigned(&tokens, at).filter(|_| values < MOST_VALUES) {
                values += 1;
                let of = if is_of_record { &mut doings.assigned } else { &mut doings.variables };
                of.entry(name).or_default().extend(statement(&tokens, at));
            }
            doings.builds |= BUILDERS.contains(&word.as_str()) && tokens.get(at + 1) == Some(&Sign('('));
            if word == "nextval" {
                let called = argument(tokens.get(at + 1..).unwrap_or_default());
                doings.draws = doings.draws.max(draws(called));
                if calls.len() < MOST_CALLS {
                    calls.push(words(called));
                }
            }
            doings.name(&tokens, at, word);
        }
        let fields = fields(&tokens);
        for call in calls {
            let of_row = doings.with_sources(call).intersection(&fields).cloned().collect();
            doings.made_of.insert(of_row);
        }
        doings
    }

    /// Adds to some words those of the statements that set them, if they are variables.
    pub fn with_sources(&self, mut found: BTreeSet<String>) -> BTreeSet<String> {
        let mut left: Vec<String> = found.iter().cloned().collect();
        while let Some(word) = left.pop() {
            let words = self.variables.get(&word).into_iter().flatten();
            left.extend(words.filter(|word| found.insert((*word).clone())).cloned().collect::<Vec<_>>());
        }
        found
    }

    /// Whether texts are composed.
    pub fn builds(&self) -> bool {
        self.builds
    }

    /// Reads a word that may be the name of a table.
    fn name(&mut self, tokens: &[TextToken], at: usize, word: &str) {
        // The name comes later.
        let is_before_name = word == "only" || tokens.get(at + 1) == Some(&Sign('.'));
        match before_name(tokens, at) {
            _ if is_before_name => drop(self.mentioned.insert(word.to_owned())),
            ("insert", "into") => {
                let columns = listed(tokens.get(at + 1..).unwrap_or_default());
                let known = self.inserted.entry(word.to_owned()).or_insert_with(|| Some(BTreeSet::new()));
                *known = known.take().zip(columns).map(|(known, columns)| &known | &columns);
                let words = statement(tokens, at);
                if ["conflict", "update"].iter().all(|word| words.contains(*word)) {
                    self.changed.insert(word.to_owned());
                }
            }
            ("for" | "do" | "on" | "key" | "before" | "after" | "of", "update") => {}
            (_, "update") | ("merge", "into") | ("delete", "from") => {
                self.changed.insert(word.to_owned());
            }
            _ => {
                self.mentioned.insert(word.to_owned());
            }
        }
    }

    /// Removes what is of no column with some names.
    pub fn keep_of(&mut self, columns: &BTreeSet<String>) {
        self.assigned.retain(|name, _| name == RECORD || columns.contains(name));
        if self.assigned.is_empty() {
            self.variables.clear();
        }
    }

    /// Adds that a default of a view sets one column.
    pub fn assign(&mut self, column: &str, words: impl Iterator<Item = String>) {
        self.assigned.entry(column.to_owned()).or_default().extend(words);
    }

    pub fn add(&mut self, other: &Doings) {
        self.add_of_columns(other);
        self.changed.extend(other.changed.iter().cloned());
        self.mentioned.extend(other.mentioned.iter().cloned());
        self.draws = self.draws.max(other.draws);
        self.builds |= other.builds;
        self.made_of.extend(other.made_of.iter().cloned());
    }

    /// Whether a drawn name is made of columns of a row that are none of these: of a child's number, and no key's.
    pub fn draws_by_others(&self, keys: &BTreeSet<&str>) -> bool {
        let is_other =
            |of: &&BTreeSet<String>| !of.is_empty() && of.iter().all(|name| !keys.contains(name.as_str()));
        self.draws != Draws::Named && self.made_of.iter().any(|of| is_other(&of))
    }

    /// Adds only what sets columns.
    pub fn add_of_columns(&mut self, other: &Doings) {
        for (of, others) in [(&mut self.assigned, &other.assigned), (&mut self.variables, &other.variables)] {
            for (name, words) in others {
                of.entry(name.clone()).or_default().extend(words.iter().cloned());
            }
        }
        self.called.extend(other.called.iter().cloned());
        for (table, columns) in &other.inserted {
            match self.inserted.get_mut(table) {
                None => drop(self.inserted.insert(table.clone(), columns.clone())),
                Some(known) => {
                    *known = known.take().zip(columns.as_ref()).map(|(known, columns)| &known | columns);
                }
            }
        }
    }

    /// Whether a sequence may be drawn from by a name that no text contains as it is.
    pub fn draws_by_made_names(&self) -> bool {
        match self.draws {
            Draws::Named => false,
            Draws::Variable => self.builds,
            Draws::Made => true,
        }
    }

    /// Returns tables whose rows these texts count by, or delete: a table that only gets more rows, and is not read,
    /// is a log.
    pub fn counted(&self) -> BTreeSet<String> {
        let read = self.inserted.keys().filter(|table| self.mentioned.contains(*table));
        self.changed.iter().chain(read).cloned().collect()
    }

    /// Returns the words of the statements that set a record's column, or the whole record with it, and of those that
    /// set their variables. Returns None if no statement does.
    pub fn sources_of(&self, column: &str) -> Option<BTreeSet<String>> {
        let of_record = self.assigned.get(RECORD).filter(|words| words.contains(column));
        Some(self.with_sources(self.assigned.get(column).or(of_record)?.clone()))
    }

    /// Whether a column's value is a number of a sequence, as far as texts show.
    pub fn draws_for(&self, column: &str, sequence: &str) -> bool {
        const DRAWS: [&str; 3] = ["nextval", "lastval", "returning"];
        self.sources_of(column).is_some_and(|words| {
            words.contains(sequence)
                || DRAWS.iter().any(|word| words.contains(*word))
                || !words.is_disjoint(&self.called)
        })
    }

    /// Whether rows of a table are inserted with a column.
    pub fn inserts(&self, table: &str, column: &str) -> bool {
        let columns = self.inserted.get(table);
        columns.is_some_and(|columns| columns.as_ref().is_none_or(|columns| columns.contains(column)))
    }
}

/// Returns how a call of nextval() draws, by what is within its parentheses.
fn draws(all: &[TextToken]) -> Draws {
    let told = all.iter().position(|token| *token != Sign('(')).unwrap_or(all.len());
    let all = &all[told..];
    let is_called = |name: &str| all.first().is_some_and(|token| token.is(name));
    if all.is_empty() || is_called("pg_get_serial_sequence") || is_called("tg_argv") {
        return Draws::Named;
    }
    let calls = all.windows(2).any(|pair| pair[0].word().is_some() && pair[1] == Sign('('));
    let is_made = calls || all.iter().any(|token| matches!(token, Sign('|' | '%')) || token.is("case"));
    match (is_made, &all[0]) {
        (true, _) => Draws::Made,
        (false, Sign('\'')) => Draws::Named,
        (false, _) => Draws::Variable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_get_a_value_are_found() {
        let text = "DECLARE n int; BEGIN IF new.a IS NULL THEN NEW.a = nextval('s'); END IF; NEW.\"B\" := new.x || '-';
            SELECT max(c), 1 INTO STRICT n, NEW.c FROM t WHERE t.d = NEW.d; -- NEW.e := 1
            INSERT INTO log VALUES (1, NEW.f); UPDATE t SET g = 1 WHERE t.g = NEW.g; NEW := jsonb_populate_record(NEW, h); RETURN NEW; END";
        let doings = Doings::of(text);
        let found: Vec<&str> = doings.assigned.keys().map(String::as_str).collect();
        assert_eq!(found, [RECORD, "B", "a", "c"]);
        let sources = |column: &str| doings.sources_of(column);
        assert!(sources("B").unwrap().contains("x") && !sources("B").unwrap().contains("s"));
        assert!(sources("h").is_some() && sources("f").is_none());
        assert!(doings.draws_for("a", "other") && !doings.draws_for("B", "s"));
        let two = Doings::of("BEGIN NEW.a := NEW.tenant; NEW.b := NEW.id; END");
        assert!(!two.sources_of("b").unwrap().contains("tenant"));
        let by_variable =
            Doings::of("DECLARE n bigint := nextval('s'); m bigint; BEGIN m := n + 1; NEW.id := m; END");
        assert!(by_variable.draws_for("id", "s") && !by_variable.draws_for("n", "s"));
    }

    #[test]
    fn tables_that_are_written_are_found() {
        let text = "UPDATE only app.c AS x SET n = n + 1 RETURNING n INTO new.id; INSERT INTO up AS u (a, \"B\") VALUES (1, 2) ON CONFLICT (a) DO UPDATE SET n = 1;
            INSERT INTO log VALUES (1); INSERT INTO nos (tenant, n) SELECT $1, max(n) + 1 FROM nos; DELETE FROM free WHERE a = 1;
            MERGE INTO merged USING log2 ON true; SELECT 1 FROM seen FOR UPDATE OF seen; EXECUTE 'update quoted set a = 1'; INSERT INTO quiet SELECT 1 ON CONFLICT DO NOTHING";
        let doings = Doings::of(text);
        let counted: Vec<String> = doings.counted().into_iter().collect();
        assert_eq!(counted, ["c", "free", "merged", "nos", "quoted", "up"]);
        assert!(doings.inserts("up", "B") && !doings.inserts("up", "n") && doings.inserts("log", "any"));
    }

    #[test]
    fn names_that_are_put_together_are_found() {
        let of = |text: &str| Doings::of(text).draws_by_made_names();
        for text in [
            "nextval('seq' || new.tenant)",
            "nextval(('seq'||new.tenant)::regclass)",
            "nextval(format('%I.no', 'tenant_' || tenant))",
            "EXECUTE 'SELECT nextval(''seq_' || t || ''')' INTO n",
            "EXECUTE format('SELECT nextval(%L)', s)",
            "s := 'seq_' || t; n := nextval(s)",
            "nextval(name_of(new.tenant))",
            "nextval(TG_TABLE_NAME || '_seq')",
        ] {
            assert!(of(text), "{text}");
        }
        let by_others = |text: &str| Doings::of(text).draws_by_others(&BTreeSet::from(["tenant"]));
        assert!(
            by_others("nextval('seq_' || new.project)")
                && by_others("s := 'seq_' || new.project; nextval(s)")
        );
        assert!(
            !by_others("nextval('seq_' || new.project || new.tenant)") && !by_others("nextval('seq_' || $1)")
        );
        for text in [
            "nextval('s')",
            "nextval('\"Odd\".\"s\"'::regclass)",
            "nextval(('s'::text)::regclass)",
            "nextval(TG_ARGV[0])",
            "nextval(pg_get_serial_sequence('t', 'id'))",
            "nextval($1)",
            "nextval($s$sq$s$)",
            "EXECUTE 'SELECT nextval(''s'')'",
            "raise notice 'a' || 'b'",
        ] {
            assert!(!of(text), "{text}");
        }
    }
}
